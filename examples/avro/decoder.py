"""Avro values in Confluent's framing, decoded by the schemas that a registry has.

It needs `fastavro` and nothing of this project: a file to copy, and to give to Spark with `--py-files`. A value is a
byte 0, the id of its writer's schema in 4 bytes, the highest first, and one datum in Avro's binary form.

What is wrong with a record is said beside it, and the next one is read. That the registry does not answer is no fault
of a record: it is asked again, and after some attempts the task fails, so that nothing good is put among the bad.
"""

import base64
import io
import json
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import fastavro

HEADER = struct.Struct(">bI")
MAGIC = 0
SCHEMAS_MAX = 1_000
MESSAGE_CHARACTERS_MAX = 300


class RegistryError(Exception):
    """The registry gave no schema and did not say that there is none."""


class UnreadableError(Exception):
    """This record cannot be decoded, and never will be."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Where it is. `credentials_file`: holds `user:password` on the executor's machine; it is read at each call."""

    url: str
    credentials_file: str | None = None
    timeout_seconds: float = 10.0
    attempts: int = 5
    pause_seconds: float = 1.0

    def find_schema(self, schema_id: int) -> Any:
        """A writer's schema, parsed. Errors: UnreadableError where there is no such Avro schema; RegistryError."""
        answer = self._ask(schema_id)
        if (kind := answer.get("schemaType", "AVRO")) != "AVRO":
            raise UnreadableError(f"schema {schema_id} is of {kind}, not of Avro")
        if answer.get("references"):
            raise UnreadableError(f"schema {schema_id} refers to other schemas, which are not looked up")
        try:
            return fastavro.parse_schema(json.loads(answer["schema"]))
        except Exception as error:  # whatever it makes of a schema that is none
            raise UnreadableError(f"schema {schema_id} is not understood: {describe(error)}") from error

    def _ask(self, schema_id: int) -> dict[str, Any]:
        for attempt in range(1, self.attempts + 1):
            try:
                return self._ask_once(schema_id)
            except HTTPError as error:
                with error:
                    if error.code == 404:
                        raise UnreadableError(f"the registry has no schema {schema_id}") from error
                    if error.code < 500 and error.code != 429:
                        raise RegistryError(f"schema {schema_id}: {self.url} says {error}") from error
                last: Exception = error
            except (OSError, HTTPException, ValueError) as error:
                last = error
            if attempt < self.attempts:
                time.sleep(self.pause_seconds)
        raise RegistryError(f"schema {schema_id}: {self.url} gives no answer: {describe(last)}") from last

    def _ask_once(self, schema_id: int) -> dict[str, Any]:
        request = Request(f"{self.url.rstrip('/')}/schemas/ids/{schema_id}")
        if self.credentials_file is not None:
            credentials = Path(self.credentials_file).read_bytes().strip()
            # Not to wherever a redirect leads.
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(credentials).decode()}")
        # A registry lies beside its brokers, which are reached without a proxy.
        with build_opener(ProxyHandler({})).open(request, timeout=self.timeout_seconds) as response:
            answer = json.load(response)
        if not isinstance(answer, dict):
            raise ValueError("the answer is not an object")
        return answer


@lru_cache(maxsize=SCHEMAS_MAX)
def writer_schema(registry: Registry, schema_id: int) -> Any:
    """Asked for once in the life of a Python worker, which is that of many tasks: an id never changes its meaning.

    Errors are not kept.
    """
    return registry.find_schema(schema_id)


def decode(registry: Registry, reader_schema: str, values: Iterable[bytes | None]) -> Iterator[dict[str, Any]]:
    """For each value in order, its `record` by the reader's schema, or the `error` that says why there is none.

    Errors: RegistryError.
    """
    reader = fastavro.parse_schema(json.loads(reader_schema))
    # An id that is unknown may be known in the next batch; asking for each of its records would flood the registry.
    refused: dict[int, UnreadableError] = {}
    for value in values:
        try:
            schema_id, body = split(value)
            if schema_id in refused:
                raise refused[schema_id]
            try:
                writer = writer_schema(registry, schema_id)
            except UnreadableError as error:
                refused[schema_id] = error
                raise
            yield {"record": read(body, schema_id, writer, reader), "error": None}
        except UnreadableError as error:
            yield {"record": None, "error": str(error)}


def split(value: bytes | None) -> tuple[int, bytes]:
    """The id of the schema, and what follows it. Errors: UnreadableError."""
    if value is None:
        raise UnreadableError("the record has no value")
    if len(value) < HEADER.size:
        raise UnreadableError(f"the value has {len(value)} bytes, too few for the id of a schema")
    magic, schema_id = HEADER.unpack_from(value)
    if magic != MAGIC:
        raise UnreadableError(f"the value begins with byte {value[0]}, not with {MAGIC}")
    return schema_id, value[HEADER.size :]


def read(body: bytes, schema_id: int, writer: Any, reader: Any) -> Any:
    """One datum that fills these bytes, as the reader's schema has it. Errors: UnreadableError."""
    stream = io.BytesIO(body)
    try:
        record = fastavro.schemaless_reader(stream, writer, reader)
    except Exception as error:  # whatever a decoder makes of bytes that are not what they should be
        raise UnreadableError(f"not readable by schema {schema_id}: {describe(error)}") from error
    if left := len(body) - stream.tell():
        raise UnreadableError(f"not readable by schema {schema_id}: {left} bytes are left over")
    return record


def describe(error: Exception) -> str:
    """Its kind and what it says, cut: some quote whole schemas."""
    return f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS_MAX]
