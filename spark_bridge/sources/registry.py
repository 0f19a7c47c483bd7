"""Finds a source by the name in the option `source`. Plug-ins are entry points of the group `rallypoint.spark_sources`.

The built-in ones are known even where the project runs from its sources and has no metadata. A module is imported only
when its source is asked for, so a query on files needs no Kafka client.
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from typing import TYPE_CHECKING

from rallypoint.spark_bridge.errors import OptionError, SourceError
from rallypoint.spark_bridge.sources.contract import Source

if TYPE_CHECKING:
    from rallypoint.spark_bridge.options import BridgeOptions

GROUP = "rallypoint.spark_sources"

BUILT_IN = (
    EntryPoint(name="files", value="rallypoint.spark_bridge.sources.files:FilesSource", group=GROUP),
    EntryPoint(name="kafka", value="rallypoint.spark_bridge.sources.kafka:KafkaSource", group=GROUP),
)


def source_names() -> list[str]:
    """All names that `find_source` knows, sorted."""
    return sorted({entry.name for entry in (*BUILT_IN, *entry_points(group=GROUP))})


def find_source(name: str) -> type[Source]:
    """The class of that name. OptionError if nobody offers it, or two do; SourceError if it cannot be used."""
    values = sorted({entry.value for entry in (*BUILT_IN, *entry_points(group=GROUP)) if entry.name == name})
    if not values:
        raise OptionError("source", f"{name!r} is none of the known sources: {', '.join(source_names())}")
    if len(values) > 1:
        raise OptionError("source", f"{name!r} is offered by {' and by '.join(values)}; uninstall one of them")
    try:
        found = EntryPoint(name=name, value=values[0], group=GROUP).load()
    except (ImportError, AttributeError) as error:
        extra = "; pip install 'rallypoint[kafka]'" if name == "kafka" else ""
        raise SourceError(f"the source {name!r} cannot be loaded: {error}{extra}") from error
    if not (isinstance(found, type) and issubclass(found, Source) and not isabstract(found)):
        raise SourceError(f"the source {name!r}: {values[0]} is no spark_bridge.sources.contract.Source")
    return found


def parse_for_source(raw: Mapping[str, str]) -> "tuple[BridgeOptions, type[Source]]":
    """All options of a query, checked against what the bridge and the chosen source know, without a connection.

    OptionError, or SourceError for a source that cannot be used.
    """
    from rallypoint.spark_bridge.options import parse_options, source_name  # noqa: PLC0415 - a task finds a source, and parses nothing

    found = find_source(source_name(raw))
    options = parse_options(raw, source_options=found.options, source_prefix=found.option_prefix)
    with found(options.source) as source:
        source.check()
    return options, found
