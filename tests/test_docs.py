"""Every setting, metric and error stands in the documents, with the facts that the code has."""

import re
import runpy
from dataclasses import fields
from fnmatch import fnmatch
from importlib import import_module
from itertools import chain, count
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rallypoint.cli.command_page import command_page
from rallypoint.cli.commands import COMMANDS, listed
from rallypoint.cli.settings_page import settings_page
from rallypoint.coordinator.core.commands import Trigger
from rallypoint.coordinator.core.effects import GroupChanged, GroupSummary
from rallypoint.coordinator.http.access.watch import IssuerStatus
from rallypoint.coordinator.http.errors import ERROR_PAGES
from rallypoint.coordinator.http.events.codec import KINDS
from rallypoint.coordinator.metrics import GROUP_STATES, Metrics
from rallypoint.coordinator.settings import Settings, flag_of, variable_of
from rallypoint.member.core.states import State
from rallypoint.member.metrics import MemberMetrics
from rallypoint.protocol.operations import CHANNEL, EVENTS, OPERATIONS
from tests.coordinator.test_metrics import Certificates, Node, Watched
from tests.fakes.silent_member import SILENT

DOCS = Path(__file__).resolve().parent.parent / "docs"


def words(text: str) -> str:
    """The text on one line, however it is wrapped."""
    return " ".join(text.split())


def section(text: str, heading: str) -> str:
    """What stands below the heading, up to the next of any level."""
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


def test_the_page_of_settings_is_what_the_generator_writes() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page(), (
        "python -m rallypoint.cli.settings_page docs/settings.md"
    )


def test_the_page_of_the_command_is_what_the_generator_writes() -> None:
    page = (DOCS / "command.md").read_text()
    assert page == command_page(), "python -m rallypoint.cli.command_page docs/command.md"
    for command in COMMANDS:
        assert f"\n### `rallypoint {command.name}`\n" in page
        assert f"  {command.name} " in listed()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_its_default_its_range_and_why(name: str) -> None:
    field = Settings.model_fields[name]
    text = words(section((DOCS / "settings.md").read_text(), f"### `{name}`"))
    default = field.default
    shown = "none" if default in (None, ()) else str(default).lower() if isinstance(default, bool) else str(default)
    assert text.startswith(f"Default: `{shown}` · ")
    assert f" · `{flag_of(name)}` · `{variable_of(name)}` " in text
    assert text.endswith(words(field.description or "?"))
    if isinstance(default, int) and not isinstance(default, bool):
        least, most = (next(getattr(x, key) for x in field.metadata if hasattr(x, key)) for key in ("ge", "le"))
        assert f" · {least:,} to {most:,} · " in text
    if name.endswith("_ms"):
        assert " · milliseconds · " in text


def test_every_metric_has_its_row() -> None:
    metrics = Metrics("1", 1)
    service = Watched()
    service.view.add("g")
    service.view.lags = {"g": 1}
    metrics.watch(service)
    metrics.watch_node(Node())
    metrics.watch_certificates(Certificates())
    metrics.watch_access(dict)
    metrics.watch_issuers(lambda: {"corp": IssuerStatus()})
    rows = dict(re.findall(r"^\| `(rallypoint_\w+)(?:{[\w,]+})?` \| (\w+) \|", (DOCS / "metrics.md").read_text(), re.M))
    registry = CollectorRegistry()
    of_members = MemberMetrics(registry)
    of_members.moved(SILENT, State.UNJOINED, State.FINDING)
    of_members.called(SILENT, "join", "NONE", 0.0)
    of_members.consumer_began(SILENT)
    expected = {}
    text = metrics.expose("")[0].decode() + generate_latest(registry).decode()
    for family in text_string_to_metric_families(text):
        if family.name.startswith("rallypoint_"):
            expected[f"{family.name}_total" if family.type == "counter" else family.name] = family.type
    assert rows == expected


def test_the_values_of_labels_are_named() -> None:
    text = (DOCS / "metrics.md").read_text()
    for value in (*GROUP_STATES, *(trigger.value for trigger in Trigger)):
        assert f"`{value}`" in text


@pytest.mark.parametrize("slug", ERROR_PAGES)
def test_every_error_has_its_row(slug: str) -> None:
    page = ERROR_PAGES[slug]
    text = (DOCS / "http.md").read_text()
    found = re.search(rf"^\| `{slug}` \| (-?\d+) `(\w+)` \| (\d+) \| (yes|no) \| (.+?) \|$", text, re.MULTILINE)
    assert found, f"no row for {slug}"
    code, name, status, retriable, action = found.groups()
    assert (int(code), name, int(status)) == (page.code, page.code.name, page.status)
    assert retriable == ("yes" if page.retriable else "no")
    assert action == page.action


ROOT = DOCS.parent
TREES = ("assignors", "coordinator", "docs", "examples", "member", "spark_bridge", "tests")
"""Where pages are; in src there are links to these."""

PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(path for tree in TREES for path in (ROOT / tree).rglob("*.md")))
    if "node_modules" not in path.parts
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page, ROOT) == []


def test_the_source_distribution_has_what_the_readme_links_to() -> None:
    """On a package index the README's links lead nowhere, so it says that the source distribution has their targets."""
    rules = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines() if not line.startswith("#")]
    linked = [link.partition("#")[0] for link in links_of(ROOT / "README.md")]
    assert len(linked) > 20
    assert [name for name in linked if not any(is_included(Path(name), rule) for rule in rules)] == []


def is_included(path: Path, rule: list[str]) -> bool:
    """Whether this line of MANIFEST.in puts the file into the source distribution."""
    match rule:
        case ["include", *patterns]:
            return any(fnmatch(str(path), pattern) and len(path.parts) == 1 for pattern in patterns)
        case ["graft", folder]:
            return path.is_relative_to(folder)
        case ["recursive-include", folder, *patterns]:
            return path.is_relative_to(folder) and any(path.match(pattern) for pattern in patterns)
        case _:
            return False


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    (root / "docs").mkdir(parents=True)
    (tmp_path / "outside.md").write_text("# Outside\n")
    (root / "docs" / "other.md").write_text("# Other\n\n## Two `words`, twice\n\n## Two words, twice\n")
    good = (
        "[a](docs/other.md) [b](docs/other.md#two-words-twice-1) [c](docs) [d](#page) [e](https://x.invalid/y) `[f](g)`"
    )
    bad = [
        "docs/none.md",
        "docs/other.md#three",
        "#none",
        "../outside.md",
        "docs/other.md#two-words-twice-2",
        "none.svg",
    ]
    page = root / "page.md"
    page.write_text(f"# Page\n\n{good}\n\n```\n[in code](none)\n```\n\n" + "".join(f"![x]({link})\n" for link in bad))
    assert broken_links(page, root) == bad


def broken_links(page: Path, root: Path) -> list[str]:
    """Links of the page to files, folders and headings that are not there, or that are outside the checkout."""
    broken = []
    for link in links_of(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        is_there = target.exists() and target.is_relative_to(root)
        if not is_there or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def links_of(page: Path) -> list[str]:
    """Those within the repository, in order."""
    text = re.sub(r"`[^`\n]*`(?!\])", "", without_code(page))
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]


def test_every_page_stands_on_the_site() -> None:
    """mkdocs.yml has the pages of the source tree below source/, and those made of docstrings below api/."""
    named = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(named) == len(set(named))
    assert {path.name for path in DOCS.glob("*.md")} == {name for name in named if "/" not in name}
    modules = runpy.run_path(str(ROOT / "scripts" / "site_pages.py"))["PUBLIC"]
    assert [name for name in named if name.startswith("api/")] == [f"api/{module}.md" for module in modules]
    for name in named:
        if name.startswith("source/"):
            assert (ROOT / name.removeprefix("source/")).is_file(), name


def test_the_reference_has_every_public_name() -> None:
    site = runpy.run_path(str(ROOT / "scripts" / "site_pages.py"))
    for module in site["PUBLIC"]:
        named = re.findall(rf"^::: {module}\.(\w+)$", site["reference_of"](module), re.MULTILINE)
        assert sorted(named) == sorted(import_module(module).__all__)
    assert set(site["PUBLIC"]) == set(re.findall(r"^\| `([\w.]+)` \|", (DOCS / "python.md").read_text(), re.MULTILINE))


def test_every_page_is_linked_to() -> None:
    reached, ahead = set[Path](), [DOCS.parent / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md" and page.is_file():
            reached.add(page)
            ahead += [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)]
    assert set(DOCS.glob("*.md")) <= reached


def without_code(page: Path) -> str:
    """The page's text, less its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as they are linked to; one that comes again has a number."""
    found = set[str]()
    for heading in re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        found.add(next(name for name in chain([anchor], (f"{anchor}-{at}" for at in count(1))) if name not in found))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_is_whole(page: Path) -> None:
    """Rows follow a head and its line, without a gap, and have as many cells as the head."""
    before = [""]
    for line in without_code(page).splitlines():
        if line.startswith("|"):
            block = [*before, line] if before[-1].startswith("|") else [line]
            if len(block) == 2:
                assert re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line), f"under a head stands its line: {block}"
            assert cells(line) == cells(block[0]), f"other cells than under {block[0]!r}: {line}"
            before = block
        else:
            assert len(before) != 1 or not before[0].startswith("|"), f"a row without a head: {before[0]}"
            before = [line]


def cells(row: str) -> int:
    """How many a row of a table has; a bar that is escaped, or stands in code with a backslash, is none."""
    return len(re.findall(r"(?<!\\)\|", row)) - 1


def test_every_operation_is_named() -> None:
    text = (DOCS / "http.md").read_text()
    for operation in (*OPERATIONS, EVENTS, CHANNEL):
        assert f"`{operation.method} {operation.path}`" in text


def test_every_kind_of_event_has_its_row() -> None:
    text = section((DOCS / "events.md").read_text(), "## Kinds")
    rows = {kind: re.findall(r"`(\w+)`", told) for kind, told in re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.M)}
    expected = {}
    for kind, event_type in KINDS.items():
        source = GroupSummary if event_type is GroupChanged else event_type
        expected[kind] = [field.name for field in fields(source) if field.name not in {"group_id", "subscriptions"}]
    assert rows == expected


SOURCES = {
    path.relative_to(DOCS.parent).as_posix() for path in (*DOCS.parent.glob("[a-z]*/**/*.py"), ROOT / "setup.py")
}
WRITTEN_BY_READERS = re.compile(r"try_\w+\.py|protocol\.py")
"""Programs that a page asks its reader to save."""
OF_TODAY = [page for page in PAGES if page.name == "DESIGN.md" or DOCS in page.parents or page.parent == ROOT]
"""Those of what is there now."""
OF_TODAY.remove(ROOT / "CHANGELOG.md")


@pytest.mark.parametrize("page", OF_TODAY, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = {name for name in re.findall(r"`([\w/]+\.py)`", page.read_text()) if not WRITTEN_BY_READERS.fullmatch(name)}
    assert {name for name in named if not any(f"/{source}".endswith(f"/{name}") for source in SOURCES)} == set()
