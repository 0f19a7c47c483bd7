"""The file of contexts, `~/.config/rallypoint/config.toml`: read for each command, changed by `rallypoint context`."""

import os
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rallypoint.cli.calls.failures import UsageError
from rallypoint.cli.output.text import shown

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

KEYS = ("coordinator", "token_file", "token_command", "ca", "certificate", "key")
"""Of a context. All are texts, but `token_command`, which may be a list of words."""


def path_of(environment: Mapping[str, str]) -> Path:
    """Where the file is, by the rules of XDG."""
    base = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "rallypoint" / "config.toml"


def read(path: Path) -> dict[str, Any]:
    """What the file holds: `current`, if it is set, and `contexts` by name. Raises UsageError, which names the file."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"contexts": {}}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    contexts = found.get("contexts", {})
    if set(found) - {"current", "contexts"} or not isinstance(contexts, dict):
        raise UsageError(f"{path}: it holds `current` and tables [contexts.NAME], and nothing else.")
    for name, context in contexts.items():
        check(path, name, context)
    return {**found, "contexts": contexts}


def check(path: Path, name: str, context: Any) -> None:
    """Raises UsageError for what is no context, and names the file."""
    at = f"{path}: context {shown(name)!r}"
    if not isinstance(context, dict) or not isinstance(context.get("coordinator"), str):
        raise UsageError(f"{at} needs `coordinator`, the URL of a node, or several with commas between.")
    for key, value in context.items():
        if key not in KEYS:
            raise UsageError(f"{at}: there is no key {shown(key)!r}; a context has {', '.join(KEYS)}.")
        is_words = isinstance(value, list) and value and all(isinstance(word, str) for word in value)
        if not isinstance(value, str) and not (key == "token_command" and is_words):
            raise UsageError(f"{at}: `{key}` must be a text{' or a list of words' if key == 'token_command' else ''}.")
    if "token_file" in context and "token_command" in context:
        raise UsageError(f"{at} has `token_file` and `token_command`: leave one out.")
    if "key" in context and "certificate" not in context:
        raise UsageError(f"{at} has a `key` without a `certificate`.")


def change(path: Path, edit: Callable[["TOMLDocument"], None]) -> None:
    """Change the file, whole or not at all; comments stay. Nobody else may read it. Raises UsageError."""
    import tomlkit  # noqa: PLC0415 - only what changes the file needs it

    read(path)  # which refuses what is not ours
    document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    edit(document)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, new = tempfile.mkstemp(dir=path.parent, prefix=".config-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(tomlkit.dumps(document))
            Path(new).replace(path.resolve())
        except BaseException:
            Path(new).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
