"""What may be committed, looked at before anything is sent: programs pass on numbers of any kind. Pure."""

from collections.abc import Mapping

from rallypoint.protocol.limits import ID_LENGTH_MAX, OFFSET_MAX, PARTITION_MAX
from rallypoint.protocol.messages import OffsetCommit
from rallypoint.protocol.text import check_utf8


def checked(offsets: Mapping[tuple[str, int], OffsetCommit | int]) -> dict[tuple[str, int], OffsetCommit]:
    """All with their metadata. TypeError for what is of the wrong kind, such as a text or a number of NumPy's;
    ValueError for an offset below 0, as in Kafka's client, and for what no request can carry.
    """
    given: object = offsets  # whatever a program without types hands over
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets: {given!r} is no mapping of (topic, partition) to an offset")
    return dict(_entry(key, value) for key, value in given.items())


def _entry(key: object, value: object) -> tuple[tuple[str, int], OffsetCommit]:
    partition = _partition(key)
    return partition, _commit(*partition, value)


def _partition(key: object) -> tuple[str, int]:
    match key:
        case (str(topic), int(partition)) if not isinstance(partition, bool):
            pass
        case _:
            raise TypeError(f"offsets: {key!r} is no pair of a text and a whole number, (topic, partition){_hint(key)}")
    if not 1 <= len(topic) <= ID_LENGTH_MAX:
        raise ValueError(f"offsets: the topic {topic[:40]!r} must have 1 to {ID_LENGTH_MAX} characters")
    _check_text(f"the topic of {key!r}", topic)
    if not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"offsets: the partition of {key!r} is not from 0 to {PARTITION_MAX}")
    return topic, partition


def _commit(topic: str, partition: int, value: object) -> OffsetCommit:
    if isinstance(value, OffsetCommit):
        _check_range(topic, partition, value.offset)
        _check_text(f"the metadata of {topic}-{partition}", value.metadata)
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"offsets: {value!r}, for {topic}-{partition}, is neither a whole number nor an OffsetCommit{_hint(value)}"
        )
    _check_range(topic, partition, value)
    return OffsetCommit(offset=value)


def _check_range(topic: str, partition: int, offset: int) -> None:
    if not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"offsets: {offset}, for {topic}-{partition}, is not from 0 to {OFFSET_MAX}")


def _check_text(what: str, text: str) -> None:
    try:
        check_utf8(text)
    except ValueError as error:
        raise ValueError(f"offsets: {what}: {error}") from None


def _hint(value: object) -> str:
    """For numbers of other libraries, which look like whole numbers."""
    found = value if isinstance(value, tuple) else (value,)
    return "; int() makes a whole number of it" if any(_is_like_a_number(one) for one in found) else ""


def _is_like_a_number(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, int)
