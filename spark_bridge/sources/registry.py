"""Finds a source by the value of the option `source`. Plug-ins are entry points of `rallypoint.spark_sources`.

The built-in sources are found even if the project runs from its sources without metadata. A source's module is imported
only when it is used, so a query on files needs no Kafka client.
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
    """The source class of this name.

    Raises OptionError if there is none or more than one, and SourceError if it cannot be loaded.
    """
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
    """Parse and check all options of a query, without a connection. Returns them with the chosen source class.

    Raises OptionError, or SourceError if the source cannot be used.
    """
    from rallypoint.spark_bridge.options import parse_options, source_name  # noqa: PLC0415 - a task finds a source, and parses nothing

    found = find_source(source_name(raw))
    options = parse_options(raw, source_options=found.options, source_prefix=found.option_prefix)
    with found(options.source) as source:
        source.check()
    return options, found
