"""What members of a group of consumers tell each other, whether it is JSON or the bytes that Kafka's consumers write.

The bytes are Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3: a version of two
bytes, then the fields, big-endian. A later version is read as 3 is, and what comes after is not looked at, as Kafka
does. Assignments alone are written here, by leaders, for members that speak bytes.
"""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import TypeVar

from pydantic import JsonValue

from rallypoint.protocol.messages import ConsumerAssignment, ConsumerSubscription
from rallypoint.protocol.opaque import OpaqueJson
from rallypoint.protocol.opaque_bytes import as_bytes, bytes_in, bytes_of

Element = TypeVar("Element")

_INT16, _INT32 = Struct(">h"), Struct(">i")


def read_subscription(metadata: OpaqueJson) -> ConsumerSubscription:
    """The subscription of a consumer. Errors: ValueError, pydantic's or of bytes, where it is none."""
    data = bytes_in(metadata)
    if data is None:
        return ConsumerSubscription.model_validate_json(metadata.text)
    reader = _Reader(data)
    version = reader.version()
    told: dict[str, object] = {"topics": tuple(reader.array(reader.text)), "user_data": reader.user_data()}
    if version >= 1:
        told["owned_partitions"] = reader.partitions()
    if version >= 2:
        told["generation_id"] = reader.integer(_INT32)
    if version >= 3:
        told["rack_id"] = reader.text_or_null()
    return ConsumerSubscription.model_validate(told)


def read_assignment(assignment: OpaqueJson) -> ConsumerAssignment:
    """The assignment of a consumer; none of its partitions where there are no bytes at all.

    Errors: ValueError, pydantic's or of bytes, where it is none.
    """
    data = bytes_in(assignment)
    if data is None:
        return ConsumerAssignment.model_validate_json(assignment.text)
    if not data:
        return ConsumerAssignment()
    reader = _Reader(data)
    reader.version()
    return ConsumerAssignment.model_validate({"partitions": reader.partitions(), "user_data": reader.user_data()})


def partitions_of_bytes(value: JsonValue) -> dict[str, list[int]] | None:
    """The partitions of an assignment in bytes, unchecked but for their form; None if the value stands for no bytes.

    Errors: ValueError for bytes that are no assignment.
    """
    data = bytes_of(value)
    if data is None:
        return None
    if not data:
        return {}
    reader = _Reader(data)
    reader.version()
    return reader.partitions()


def write_assignment(assignment: ConsumerAssignment) -> OpaqueJson:
    """The assignment as bytes, version 0: the fields of 1 to 3 are the same, and every client reads it.

    User data that does not stand for bytes is its JSON text. `partition_counts` have no place in the bytes.
    """
    topics = (_text(topic) + _array(map(_INT32.pack, numbers)) for topic, numbers in assignment.partitions.items())
    return OpaqueJson.of(as_bytes(_INT16.pack(0) + _array(topics) + _user_data(assignment.user_data)))


def _text(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _array(elements: Iterable[bytes]) -> bytes:
    listed = list(elements)
    return _INT32.pack(len(listed)) + b"".join(listed)


def _user_data(value: JsonValue) -> bytes:
    if value is None:
        return _INT32.pack(-1)
    data = bytes_of(value)
    if data is None:
        data = OpaqueJson.of(value).text.encode()
    return _INT32.pack(len(data)) + data


class _Reader:
    """Bytes from the first to the last; ValueError where there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._next = 0

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._next:
            raise ValueError(f"{count} bytes wanted, {len(self._data) - self._next} left")
        self._next += count
        return self._data[self._next - count : self._next]

    def integer(self, form: Struct) -> int:
        number: int = form.unpack(self._take(form.size))[0]
        return number

    def version(self) -> int:
        version = self.integer(_INT16)
        if version < 0:
            raise ValueError(f"version {version}")
        return version

    def text(self) -> str:
        return self._take(self.integer(_INT16)).decode()

    def text_or_null(self) -> str | None:
        length = self.integer(_INT16)
        return None if length < 0 else self._take(length).decode()

    def array(self, element: Callable[[], Element]) -> list[Element]:
        count = self.integer(_INT32)
        # Each takes two bytes at least, so no list is made that the bytes cannot hold.
        if not 0 <= 2 * count <= len(self._data) - self._next:
            raise ValueError(f"{count} elements wanted, {len(self._data) - self._next} bytes left")
        return [element() for _ in range(count)]

    def partitions(self) -> dict[str, list[int]]:
        """By topic; those of a topic that is named twice are put together."""
        partitions: dict[str, list[int]] = {}
        for topic, numbers in self.array(lambda: (self.text(), self.array(lambda: self.integer(_INT32)))):
            partitions.setdefault(topic, []).extend(numbers)
        return partitions

    def user_data(self) -> JsonValue:
        """Bytes again, in the form that the API has for them; null where there are none."""
        length = self.integer(_INT32)
        return None if length < 0 else as_bytes(self._take(length))
