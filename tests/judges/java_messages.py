"""Kafka's own Java classes as the judge of the codec: they write a message that is described in JSON.

Theory of operation: the jar of Kafka's clients has for each message a class and a converter from JSON. A JVM with
Py4J's server and Kafka's jars runs beside the test, which calls both by name. Nothing is compiled, so a Java without
its compiler will do.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.judges.schema import Message

JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
STOP_SECONDS = 20.0


class JavaMessages:
    """Kafka's classes in a JVM that runs."""

    def __init__(self, jvm: Any) -> None:
        # Each part of a name is looked up in the JVM, so no name is looked up for each message.
        self._mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self._messages = jvm.org.apache.kafka.common.message
        self._api_keys = jvm.org.apache.kafka.common.protocol.ApiKeys
        self._message_util = jvm.org.apache.kafka.common.protocol.MessageUtil
        self._converters: dict[str, Any] = {}

    def encode(self, message: Message, version: int, content: Mapping[str, Any]) -> bytes:
        """The bytes that Kafka writes. `content`: as its converter reads it.

        Errors: py4j's Py4JJavaError, if Kafka's classes refuse it.
        """
        class_name = message.name if message.type == "data" else f"{message.name}Data"
        if class_name not in self._converters:
            self._converters[class_name] = getattr(self._messages, f"{class_name}JsonConverter")
        data = self._converters[class_name].read(self._mapper.readTree(json.dumps(content)), version)
        written = self._message_util.toByteBufferAccessor(data, version).buffer()
        return bytes(self._message_util.byteBufferToArray(written))

    def header_versions(self, api_key: int, version: int) -> tuple[int, int]:
        """Of the request's header and of the response's."""
        key = self._api_keys.forId(api_key)
        return key.requestHeaderVersion(version), key.responseHeaderVersion(version)


@contextmanager
def running_java_messages(java_home: Path, jars: Path) -> Iterator[JavaMessages]:
    """Start the JVM, and end it."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # noqa: PLC0415 - PySpark brings it

    port, token, process = launch_gateway(
        classpath=f"{jars}/*",
        javaopts=list(JAVA_OPTIONS),
        java_path=str(java_home / "bin" / "java"),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield JavaMessages(gateway.jvm)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(STOP_SECONDS)
