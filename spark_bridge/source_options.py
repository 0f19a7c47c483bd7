"""The options that a task gets, in a module of their own, so that a task does not import the others."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a source: everything that an executor needs to read, and nothing about the group.

    `name`: the value of the option `source`.
    `topics`: the named topics; empty with a pattern.
    `include_headers`: whether rows have the column `headers`.
    `fail_on_data_loss`: whether missing records are an error.
    `own`: the options that the source declares, under their documented names, and those with its prefix, under the name
    as given (Spark's lower case).
    """

    name: str
    topics: tuple[str, ...]
    include_headers: bool = False
    fail_on_data_loss: bool = True
    own: Mapping[str, str] = field(default_factory=dict, repr=False)
