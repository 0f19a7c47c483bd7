"""Avro in Confluent's framing without Spark: versions, wrong bytes, and a registry that fails."""

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="missing fastavro: pip install fastavro")

import fastavro

from examples.avro.decoder import Registry, RegistryError, decode, describe
from tests.fakes.schema_registry import SchemaRegistry, framed, running_registry

FIELDS: list[dict[str, Any]] = [{"name": "user", "type": "string"}, {"name": "clicks", "type": "long"}]
OLD = {"type": "record", "name": "Visit", "fields": FIELDS}
NEW = {"type": "record", "name": "Visit", "fields": [*FIELDS, {"name": "country", "type": "string", "default": "?"}]}
CREDENTIALS = "reader:of-the-registry"


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry(CREDENTIALS) as running:
        yield running


@pytest.fixture
def client(registry: SchemaRegistry, tmp_path: Path) -> Registry:
    path = tmp_path / "credentials"
    path.write_text(CREDENTIALS + "\n")
    return Registry(registry.url, str(path), pause_seconds=0)


def written(schema_id: int, schema: Any, record: Any) -> bytes:
    """What a producer sends."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), record)
    return framed(schema_id, body.getvalue())


def read(client: Registry, *values: bytes | None) -> list[dict[str, Any]]:
    return list(decode(client, json.dumps(NEW), values))


def test_each_version_is_read_by_its_own_schema_which_is_asked_for_once(
    registry: SchemaRegistry, client: Registry
) -> None:
    old, new = registry.register("visits-value", OLD), registry.register("visits-value", NEW)
    assert registry.register("others-value", OLD) == old
    for _ in range(2):
        assert read(
            client,
            written(old, OLD, {"user": "ada", "clicks": 1}),
            written(new, NEW, {"user": "bob", "clicks": 2, "country": "NL"}),
            written(old, OLD, {"user": "eve", "clicks": 3}),
        ) == [
            {"record": {"user": "ada", "clicks": 1, "country": "?"}, "error": None},
            {"record": {"user": "bob", "clicks": 2, "country": "NL"}, "error": None},
            {"record": {"user": "eve", "clicks": 3, "country": "?"}, "error": None},
        ]
    assert registry.reads == {f"/schemas/ids/{old}": 1, f"/schemas/ids/{new}": 1}


def test_what_is_wrong_with_a_record_is_said_beside_it(registry: SchemaRegistry, client: Registry) -> None:
    old = registry.register("visits-value", OLD)
    json_id = registry.register("visits-value", {"type": "object"}, "JSON")
    other = registry.register("visits-value", {"type": "record", "name": "Visit", "fields": FIELDS[:1]})
    none = registry.register("visits-value", {"type": "nothing"})
    good = written(old, OLD, {"user": "ada", "clicks": 1})
    unknown = framed(2**32 - 1, good[5:])
    found = read(
        client, None, b"", good[:4], b"{" + good[1:], unknown, unknown, good[:-1], good + b"\x00",
        framed(json_id, b"{}"), framed(other, good[5:-1]), framed(none, b""), good,
    )  # fmt: skip
    errors = [row["error"] for row in found]
    assert [row["record"] is None for row in found] == [error is not None for error in errors]
    assert errors[:6] == [
        "the record has no value",
        "the value has 0 bytes, too few for the id of a schema",
        "the value has 4 bytes, too few for the id of a schema",
        "the value begins with byte 123, not with 0",
        "the registry has no schema 4294967295",
        "the registry has no schema 4294967295",
    ]
    assert errors[6].startswith(f"not readable by schema {old}: ")
    assert errors[7:9] == [
        f"not readable by schema {old}: 1 bytes are left over",
        f"schema {json_id} is of JSON, not of Avro",
    ]
    assert errors[9].startswith(f"not readable by schema {other}: SchemaResolutionError: ")
    assert errors[10].startswith(f"schema {none} is not understood: UnknownType: ")
    assert errors[11] is None
    assert registry.reads["/schemas/ids/4294967295"] == 1


def test_no_bytes_end_a_query(registry: SchemaRegistry, client: Registry) -> None:
    old = registry.register("visits-value", OLD)
    chance = random.Random(1)
    found = read(client, *(framed(old, chance.randbytes(chance.randrange(12))) for _ in range(3_000)))
    assert len(found) == 3_000
    assert all((row["record"] is None) != (row["error"] is None) for row in found)


def test_an_id_that_comes_to_be_known_is_read_then(registry: SchemaRegistry, client: Registry) -> None:
    value = written(1, OLD, {"user": "ada", "clicks": 1})
    assert read(client, value)[0]["error"] == "the registry has no schema 1"
    assert registry.register("visits-value", OLD) == 1
    assert read(client, value)[0]["error"] is None


def test_a_registry_that_fails_is_asked_again_and_at_last_ends_the_task(
    registry: SchemaRegistry, client: Registry
) -> None:
    value = written(registry.register("visits-value", OLD), OLD, {"user": "ada", "clicks": 1})
    registry.failures_due = client.attempts
    with pytest.raises(RegistryError, match=r"schema 1: .* gives no answer: HTTPError: HTTP Error 503"):
        read(client, value)
    registry.failures_due = client.attempts - 1
    assert read(client, value)[0]["error"] is None


def test_a_registry_that_is_not_there_ends_the_task() -> None:
    with running_registry() as gone:
        url = gone.url
    with pytest.raises(RegistryError, match=r"gives no answer: .*refused"):
        read(Registry(url, pause_seconds=0), framed(1, b""))


def test_credentials_that_are_refused_end_the_task_at_once(registry: SchemaRegistry, tmp_path: Path) -> None:
    path = tmp_path / "wrong"
    path.write_text("reader:something-else")
    with pytest.raises(RegistryError, match="says HTTP Error 401") as caught:
        read(Registry(registry.url, str(path), pause_seconds=3600), framed(1, b""))
    assert "something-else" not in str(caught.value)


def test_credentials_do_not_follow_a_redirect(registry: SchemaRegistry, client: Registry) -> None:
    value = written(registry.register("visits-value", OLD), OLD, {"user": "ada", "clicks": 1})
    with running_registry() as other:
        other.register("visits-value", OLD)
        other.authorizations.clear()
        registry.moved_to = other.url
        assert read(client, value)[0]["error"] is None
        assert other.authorizations == [None]


def test_a_long_error_is_cut() -> None:
    assert len(describe(ValueError("x" * 10_000))) == 300
