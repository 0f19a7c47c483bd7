"""The facts of Kafka's message definitions, taken from the jar of its clients into messages.json.

The jar holds a file for each message, in JSON with comments. Kept are names, types, numbers and versions; what the
definitions say in words is not. The file is under version control, so that the codec needs no jar; a test says when
the two differ. A message that is missing in an instrument of tomorrow is one more name in `NAMES`.

`python -m tests.judges.definitions` fetches the jar, if it has to, and writes the file.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tests.judges.schema import MESSAGES
from tests.real.kafka import KAFKA_VERSION, fetch_jars
from tests.real.parts import find_java_home

APIS = (
    "ApiVersions",
    "DeleteGroups",
    "DescribeCluster",
    "DescribeGroups",
    "FindCoordinator",
    "Heartbeat",
    "JoinGroup",
    "LeaveGroup",
    "ListGroups",
    "Metadata",
    "OffsetCommit",
    "OffsetDelete",
    "OffsetFetch",
    "SyncGroup",
)
NAMES = (
    "RequestHeader",
    "ResponseHeader",
    "ConsumerProtocolSubscription",
    "ConsumerProtocolAssignment",
    *(f"{api}{side}" for api in APIS for side in ("Request", "Response")),
)
KEPT = frozenset({
    "apiKey", "validVersions", "flexibleVersions", "fields",
    "name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default", "ignorable",
})  # fmt: skip
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def clients_jar(jars: Path) -> Path:
    """The one of Kafka's jars that has the definitions."""
    return jars / f"kafka-clients-{KAFKA_VERSION}.jar"


def read_definitions(jar: Path, names: Iterable[str] = NAMES) -> Mapping[str, Any]:
    """The facts of these messages, by name. KeyError for a name that the jar does not have."""
    with ZipFile(jar) as files:
        texts = {name: files.read(f"common/message/{name}.json").decode() for name in names}
    return {name: facts_of(json.loads(_COMMENT.sub("", text))) for name, text in texts.items()}


def facts_of(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a message or of a field."""
    kept = {key: value for key, value in definition.items() if key in KEPT and value is not False}
    if "apiKey" in kept or "validVersions" in kept:
        del kept["name"]
    if "fields" in kept:
        kept["fields"] = [facts_of(field) for field in kept["fields"]]
    return kept


def text_of(messages: Mapping[str, Any]) -> str:
    """The file's text: a line for each field of a message, so that a change of one is seen as such."""
    written = ",\n".join(_lines_of(name, facts) for name, facts in messages.items())
    return f"{{\n{written}\n}}\n"


def _lines_of(name: str, facts: Mapping[str, Any]) -> str:
    head = json.dumps({key: value for key, value in facts.items() if key != "fields"})
    fields = ",\n".join(f"    {json.dumps(field)}" for field in facts["fields"])
    return f' {json.dumps(name)}: {head[:-1]}, "fields": [\n{fields}\n ]}}'


def main() -> None:
    """Write the file."""
    home, maven = find_java_home(), shutil.which("mvn")
    if home is None or maven is None:
        sys.exit("The definitions are in a jar that Maven fetches: it takes Java 17 or later and Maven.")
    MESSAGES.write_text(text_of(read_definitions(clients_jar(fetch_jars(home, Path(maven))))), "utf-8")


if __name__ == "__main__":
    main()
