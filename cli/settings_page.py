"""Generates the page of settings, `docs/settings.md`.

`python -m rallypoint.cli.settings_page docs/settings.md` writes it. A test compares the file with this output.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

from rallypoint.cli.flags import shown_default
from rallypoint.coordinator.settings import Settings, flag_of, variable_of

WIDTH = 120

HEAD = """\
# Settings

This page is for operators: every setting of `rallypoint serve`, with its default, its range, and who would change it.
You can give each in three places; the first that names it counts:

1. a flag, `--group-max-size 500`
2. the environment, `RALLYPOINT_GROUP_MAX_SIZE=500`
3. a TOML file, `group_max_size = 500`, named by `--config PATH` or `RALLYPOINT_CONFIG`

Lists are separated by commas in a flag and in the environment, and are lists in the file. Switches (`insecure`) are
`--insecure` and `--no-insecure`, and `true` or `false` elsewhere. An unknown flag or key of the file is an error; an
unknown variable that begins with `RALLYPOINT_` is reported and ignored. For a wrong value the command prints a
sentence that names the place, and ends with status 2.

What is not here is fixed: [HTTP](http.md#limits) has those limits with their values. If you try to set
one of them, the command names the value at which it is fixed.

```toml
# rallypoint.toml
host = "0.0.0.0"
advertised_url = "http://rally.example.org:8000"
storage = "sqlite:////var/lib/rallypoint/groups.db"
tokens = ["sha256:…"]            # rallypoint token
group_initial_rebalance_delay_ms = 1000
```
"""


def settings_page() -> str:
    """The whole page: each section with its settings, in the order of their declaration."""
    lines = [HEAD]
    section = None
    for name, field in Settings.model_fields.items():
        extra: Any = field.json_schema_extra
        if extra["section"] != section:
            section = extra["section"]
            lines.append(f"## {section}\n")
        facts = [f"Default: `{shown_default(field.default)}`", *_bounds(name, field.metadata)]
        places = f"`{flag_of(name)}` · `{variable_of(name)}`"
        lines.append(f"### `{name}`\n\n{' · '.join(facts)} · {places}\n\n{_filled(extra['text'])}\n")
        lines.append(f"{_filled(extra['reason'])}\n")
    return "\n".join(lines)


def _filled(text: str) -> str:
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


_NAMES = ("ge", "le", "max_length")


def _bounds(name: str, metadata: list[Any]) -> Iterator[str]:
    """The unit and the bounds of a setting, as far as it has them."""
    found = {key: getattr(bound, key) for bound in metadata for key in _NAMES if hasattr(bound, key)}
    for ending, unit in (("_ms", "milliseconds"), ("_bytes", "bytes")):
        if name.endswith(ending):
            yield unit
    if found.keys() >= {"ge", "le"}:
        yield f"{found['ge']:,} to {found['le']:,}"
    if "max_length" in found:
        yield f"at most {found['max_length']} characters"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(settings_page(), "utf-8")
