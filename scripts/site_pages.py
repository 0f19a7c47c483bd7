"""What the site has beside docs/: pages of the source tree that are linked to, and the reference of the public modules.

In the repository a link is a path. Here each link into the source tree leads to a page under `source/`, made of the
file: Markdown as it is, anything else as a listing. MkDocs calls the functions named `on_…`.
"""

import ast
import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "source"
PUBLIC = ("rallypoint", "rallypoint.sources", "rallypoint.testing", "rallypoint.assignors", "rallypoint.spark")
ALWAYS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
DESIGNS = ("*/DESIGN.md", "coordinator/*/DESIGN.md", "examples/*/README.md")
FENCE = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
MERMAID = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".js": "javascript", ".mjs": "javascript", ".go": "go", ".sh": "sh", ".json": "json"}


def on_files(files: "Files", config: Any) -> "Files":
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - the tests read this module without MkDocs

    for module in PUBLIC:
        files.append(File.generated(config, f"api/{module}.md", content=reference_of(module)))
    ahead = sorted((ROOT / "docs").rglob("*.md"))
    found = [ROOT / name for name in ALWAYS] + [path for pattern in DESIGNS for path in sorted(ROOT.glob(pattern))]
    seen = set(ahead)
    while ahead or found:
        for path in found:
            if path not in seen and path.exists() and not path.is_relative_to(ROOT / "docs"):
                seen.add(path)
                ahead.append(path)
                files.append(File.generated(config, site_path(path), content=content_of(path)))
        found = [target for page in ahead if page.suffix == ".md" for target in targets_of(page)]
        ahead = []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead each link to where its target stands on the site, and show a diagram of states as a table."""
    here = page.file.src_uri
    if here == "python.md":
        markdown += "".join(f"- [`{module}`](api/{module}.md)\n" for module in PUBLIC)
    if here.startswith("api/"):
        return markdown
    in_source = here.startswith(f"{SOURCE}/")
    folder = (ROOT / here.removeprefix(f"{SOURCE}/") if in_source else ROOT / "docs" / here).parent

    def lead(found: "re.Match[str]") -> str:
        target = (folder / found[1]).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            return found[0]
        return f"]({os.path.relpath(site_path(target), PurePosixPath(here).parent)}{found[2] or ''})"

    markdown = MERMAID.sub(table_of, markdown)
    parts = FENCE.split(markdown)
    return "".join(plain(part) if FENCE.fullmatch(part) else LINK.sub(lead, part) for part in parts)


def plain(fence: str) -> str:
    """A block of code less the words behind its language, by which tests find it, and MkDocs does not."""
    return re.sub(r"\A( *```\w*)[^\n]*", r"\1", fence)


def site_path(path: Path) -> str:
    """Where a file or folder of the repository stands on the site, as MkDocs names sources."""
    if (path / "README.md").is_file():
        path /= "README.md"
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    name = f"{SOURCE}/{path.relative_to(ROOT).as_posix()}"
    return name if path.suffix == ".md" else f"{name}.md"


def targets_of(page: Path) -> list[Path]:
    """The files and folders of the repository that a page links to."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    paths = [(page.parent / found[1]).resolve() for found in LINK.finditer(text)]
    return [path for path in paths if path.is_relative_to(ROOT)]


def content_of(path: Path) -> str:
    """The page made of a file or a folder."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        listed = sorted(child.name for child in path.iterdir() if not child.name.startswith(("_", ".")))
        return f"# `{name}/`\n\n" + "".join(f"- `{child}`\n" for child in listed)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    return f"# `{name}`\n\n~~~~{LANGUAGES.get(path.suffix, 'text')}\n{text}~~~~\n"


def table_of(diagram: "re.Match[str]") -> str:
    """The moves of a diagram of states: the library that would draw them is fetched from elsewhere."""
    moves = re.findall(r"^ *(\S+) --> (\w+)(?:: (.*))?$", diagram[1], re.MULTILINE)
    rows = "".join(f"| {start.replace('[*]', 'at first')} | {end} | {when} |\n" for start, end, when in moves)
    return f"| from | to | when |\n|---|---|---|\n{rows}"


def reference_of(module: str) -> str:
    """The page of a public module: what it says of itself, and each name of its `__all__`, errors last."""
    tree = ast.parse(source_of(module).read_text(encoding="utf-8"))
    (names,) = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign) and is_all(node)]
    homes = {
        alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    missing = sorted(set(names) - homes.keys())
    if missing:
        raise ValueError(f"{module}: it is not to be seen where these come from: {missing}")
    errors = [name for name in names if homes[name].endswith(".errors")]
    others = [name for name in names if name not in errors]
    said = re.sub(r"`docs/(\w+)\.md`", r"[\1](../\1.md)", ast.get_docstring(tree) or "")
    parts = [f"# `{module}`\n\n{said}\n"]
    for heading, listed in (("Classes and functions", others), ("Errors", errors)):
        if listed:
            parts.append(f"\n## {heading}\n")
        parts += [f"\n::: {module}.{name}\n    options:\n      heading_level: 3\n" for name in listed]
    return "".join(parts)


def source_of(module: str) -> Path:
    """The file of a public module."""
    path = ROOT / "src" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def is_all(node: ast.Assign) -> bool:
    """Whether the names that the module offers are listed here."""
    return [ast.unparse(target) for target in node.targets] == ["__all__"]
