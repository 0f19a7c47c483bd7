"""What the sources of this package raise, in words for the operator of the program.

SourceError
  RecordsLost    records between two positions are gone
"""


class SourceError(Exception):
    """A source's own failure: what was found is not what a source of its kind holds."""


class RecordsLost(SourceError):  # noqa: N818 - it says what happened
    """What was to be read next does not exist any more, or never did."""
