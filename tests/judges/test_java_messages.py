"""The codec writes what Kafka's own classes write, byte for byte, and messages.json is what Kafka's jar says."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.judges.codec import decode, encode
from tests.judges.definitions import clients_jar, read_definitions, text_of
from tests.judges.headers import APIS, MESSAGES, Api, request_header_version, response_header_version
from tests.judges.java_messages import JavaMessages, running_java_messages
from tests.judges.random_messages import json_of, random_value
from tests.judges.schema import MESSAGES as MESSAGES_FILE
from tests.judges.schema import Message
from tests.real.kafka import KAFKA_VERSION, require_jars
from tests.sizes import by_size

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.judge("Kafka's Java classes", KAFKA_VERSION, "write the messages that the codec writes, byte for byte"),
]

VALUES = by_size(0, 20, 200)
"""Of each version of each message."""


@pytest.fixture(scope="module")
def java_messages() -> Iterator[JavaMessages]:
    pytest.importorskip("py4j", reason="missing py4j: pip install 'rallypoint[spark]'")
    with running_java_messages(*require_jars()) as messages:
        yield messages


@pytest.fixture(scope="module")
def jars() -> Path:
    return require_jars()[1]


def test_the_file_has_what_the_jar_says(jars: Path) -> None:
    written = text_of(read_definitions(clients_jar(jars)))
    assert MESSAGES_FILE.read_text("utf-8") == written, "python -m tests.judges.definitions"


@pytest.mark.parametrize("message", MESSAGES.values(), ids=lambda message: message.name)
def test_random_messages_of_every_version_are_kafkas_bytes(message: Message, java_messages: JavaMessages) -> None:
    for version in message.versions:
        for seed in range(VALUES):
            value = random_value(message, version, Random(f"{message.name} {version} {seed}"))
            data = encode(message, version, value)
            assert data == java_messages.encode(message, version, json_of(message, version, value)), (version, value)
            assert decode(message, version, data) == value


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.request.name)
def test_headers_have_kafkas_versions(api: Api, java_messages: JavaMessages) -> None:
    assert api.request.api_key is not None
    assert api.request.versions == api.response.versions
    for version in api.request.versions:
        ours = (request_header_version(api, version), response_header_version(api, version))
        assert java_messages.header_versions(api.request.api_key, version) == ours, version
