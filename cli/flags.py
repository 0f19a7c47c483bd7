"""The settings as flags of a command: one flag for each field, with the field's description as help."""

import argparse
from typing import Any

from rallypoint.coordinator.settings import Settings, flag_of


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting, grouped by section."""
    groups: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        section = str(extra["section"])
        group = groups.setdefault(section, None) or parser.add_argument_group(section)
        groups[section] = group
        text = f"{field.description} Default: {shown_default(field.default)}."
        options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text.replace("%", "%%")}
        if field.annotation is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["metavar"] = _metavar(name)
        group.add_argument(flag_of(name), **options)


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given as flags, by field name."""
    return {name: value for name, value in vars(arguments).items() if name in Settings.model_fields}


def shown_default(default: Any) -> str:
    """The text of a default in the help and in docs/settings.md."""
    if default is None or default == ():
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _metavar(name: str) -> str:
    for ending in ("_ms", "_bytes"):
        if name.endswith(ending):
            return ending[1:].upper()
    return {
        "host": "ADDRESS",
        "advertised_url": "URL",
        "storage": "URL",
        "node_id": "NAME",
        "tokens": "HASHES",
        "token_file": "PATH",
        "cluster_token_file": "PATH",
        "access": "PATH",
        "audit_log": "PATH",
        "allowed_hosts": "NAMES",
        "allowed_origins": "ORIGINS",
        "log_level": "LEVEL",
        "log_format": "FORM",
    }.get(name, "NUMBER")
