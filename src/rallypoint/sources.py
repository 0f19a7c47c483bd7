"""Where a consumer's records come from: folders of files, and Kafka.

`FilesSource` reads what a `FilesWriter` appends; both need nothing but a folder. `KafkaSource` needs the extra `kafka`:
`pip install 'rallypoint[kafka]'`. `KafkaTopics` gives a Kafka cluster's partition counts to a `GroupMember`.

A source of your own implements `rallypoint.Source` or `rallypoint.BlockingSource`. `docs/consumer.md` is the guide.
"""

from typing import TYPE_CHECKING

from rallypoint._lazy import lazy_names

if TYPE_CHECKING:
    from rallypoint.member.sources.files import FilesSource
    from rallypoint.member.sources.kafka import KafkaRecord, KafkaSource
    from rallypoint.member.sources.kafka_topics import KafkaTopics
    from rallypoint.member.sources.records import Record
    from rallypoint.member.sources.writer import FilesWriter

__all__ = [
    "FilesSource",
    "FilesWriter",
    "KafkaRecord",
    "KafkaSource",
    "KafkaTopics",
    "Record",
]

_HOMES = {
    "rallypoint.member.sources.files": "FilesSource",
    "rallypoint.member.sources.writer": "FilesWriter",
    "rallypoint.member.sources.records": "Record",
    "rallypoint.member.sources.kafka": "KafkaRecord KafkaSource",
    "rallypoint.member.sources.kafka_topics": "KafkaTopics",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(globals(), _HOMES)


def __dir__() -> list[str]:
    return __all__
