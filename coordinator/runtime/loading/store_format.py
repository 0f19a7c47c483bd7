"""The format of the store: checked before anything else is read, and raised by the first release that adds to it.

A store has a version MAJOR.MINOR; a store without one is 1.0. A newer minor version may have fields and kinds of
records that this release does not know. It skips the fields and leaves the records as they are. Another major version
is refused. Nothing here migrates: there has been one major version only.
"""

import logging

from rallypoint.coordinator.core.records import UNFINISHED_COPY, FormatRecord
from rallypoint.coordinator.storage.codec import MINOR_VERSION, VERSION, decode, encode
from rallypoint.coordinator.storage.contract import FORMAT_KEYSPACE, Keyspace, Store, StoredDataInvalid

FIRST = FormatRecord(1, 0, "")
"""Of a store that does not say."""

logger = logging.getLogger(__name__)


def format_of(release: str) -> FormatRecord:
    """What this release writes."""
    return FormatRecord(VERSION, MINOR_VERSION, release)


async def follow_format(store: Store, ours: FormatRecord) -> bool:
    """Look at the store's format, and raise it to ours where it is older. True where a newer minor was at work there.

    Raises StoredDataInvalid for another major version and for a record that cannot be read; whatever the store raises.
    """
    keyspace = await store.acquire(FORMAT_KEYSPACE)
    try:
        stored = await read_format(keyspace)
        check_major(stored or FIRST, ours)
        if stored is None or stored.minor < ours.minor:
            await keyspace.append([encode(ours)])
            return False
    finally:
        await keyspace.release()
    if stored.minor > ours.minor:
        logger.warning(
            "the store has format %d.%d, written by Rallypoint %s; this is %s, with format %d.%d: what the newer one"
            " added is passed over, and left as it is",
            *(stored.major, stored.minor, stored.release),
            *(ours.release, ours.major, ours.minor),
        )
    return stored.minor > ours.minor


def check_major(stored: FormatRecord, ours: FormatRecord) -> None:
    """Raise StoredDataInvalid, in a sentence with both versions, where they have nothing in common."""
    if stored.major == ours.major:
        return
    if stored.major == UNFINISHED_COPY:
        raise StoredDataInvalid(
            "the store is an unfinished copy, and not whole; run `rallypoint store copy --replace` again, from the same"
            " store"
        )
    theirs = f"the store has format {stored.major}.{stored.minor}, written by Rallypoint {stored.release}"
    here = f"this is Rallypoint {ours.release}, which reads format {ours.major}"
    if stored.major > ours.major:
        way = f"start Rallypoint {stored.release} or a later one, or put a copy from before the upgrade in its place"
    else:
        way = f"start a release between the two first, which reads format {stored.major} and writes {stored.major + 1}"
    raise StoredDataInvalid(f"{theirs}, and {here}; {way}")


async def read_format(keyspace: Keyspace) -> FormatRecord | None:
    """The format of the store; None where it does not say. Raises StoredDataInvalid, and whatever the scan raises."""
    record: FormatRecord | None = None
    async for page in keyspace.scan(b"f"):
        for key, value in page:
            found = decode(key, value, of_newer_minor=True)
            if not isinstance(found, FormatRecord) or found.major < UNFINISHED_COPY or found.minor < 0:
                raise StoredDataInvalid(f"the stored record {key!r} does not say which format the store has")
            record = found
    return record
