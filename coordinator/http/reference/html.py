"""The pages for people, as text: the reference made from the OpenAPI document, the error pages.

Plain HTML with one style sheet inside and no script, so nothing is fetched from anywhere and the policy in
`HTML_HEADERS` can forbid everything else.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from rallypoint.coordinator.http.errors import ErrorPage
from rallypoint.coordinator.http.reference.meanings import MEANINGS, calls_of, example_of
from rallypoint.protocol.operations import OPERATIONS

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #0a6cba; }
@media (prefers-color-scheme: dark) { :root { --accent: #6cb8f5; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem 1.25rem 4rem; }
a { color: var(--accent); }
code, pre { font: 0.9em/1.45 ui-monospace, monospace; }
code { background: var(--soft); padding: 0.1em 0.3em; border-radius: 3px; overflow-wrap: anywhere; }
pre { background: var(--soft); padding: 0.75rem; border-radius: 6px; overflow-x: auto; }
pre code { background: none; padding: 0; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem 0.3rem 0; border-bottom: 1px solid var(--line); }
section { border-top: 1px solid var(--line); margin-top: 1.5rem; }
h2 { margin-top: 2.5rem; }
h3 { margin-bottom: 0.25rem; overflow-wrap: anywhere; }
.method { display: inline-block; min-width: 4.2rem; font-weight: 700; color: var(--accent); }
nav ul { list-style: none; padding: 0; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

HTML_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Server": "rallypoint",
}


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>"
    )


def _prose(text: str) -> str:
    """Text with `code` between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already; "" where there is no row."""
    lines = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in rows]
    if not lines:
        return ""
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


# --- the error pages


def error_page(error: ErrorPage) -> str:
    """What one error means, when it occurs, what to do, and an answer as an example."""
    meaning = MEANINGS[error.slug]
    calls = [f"<code>{call.method} {escape(call.path)}</code>" for call in calls_of(error.slug)]
    if len(calls) == len(OPERATIONS):
        calls = ["every operation"]
    places = [f"As the answer to {', '.join(calls)}."] if calls else []
    places += [_prose(meaning.elsewhere)] if meaning.elsewhere else []
    example = example_of(error.slug).model_dump_json(exclude_none=True, indent=2)
    rows = (
        ("HTTP status", str(error.status)),
        ("<code>error_code</code>", str(int(error.code))),
        ("<code>error_name</code>", f"<code>{error.code.name}</code>"),
        ("<code>retriable</code>", "true" if error.retriable else "false"),
    )
    body = (
        f"<h1>{escape(error.title)}</h1><h2>What it means</h2><p>{_prose(meaning.text)}</p>"
        f"<h2>When it occurs</h2><p>{' '.join(places)}</p>"
        f"<h2>What to do</h2><p>{_prose(error.action)}</p>"
        f"<h2>As an answer</h2>{_table(('Field', 'Value'), rows)}<pre><code>{escape(example)}</code></pre>"
        f'<p><a href="/errors">All errors</a> · <a href="/docs">Reference</a></p>'
    )
    return _page(error.title, body)


def errors_page(errors: Iterable[ErrorPage]) -> str:
    """All errors in the order of their statuses."""
    rows = (
        (
            str(error.status),
            f'<a href="/errors/{error.slug}">{escape(error.slug)}</a>',
            str(int(error.code)),
            "yes" if error.retriable else "no",
            escape(error.title),
        )
        for error in sorted(errors, key=lambda error: (error.status, error.slug))
    )
    table = _table(("Status", "Error", "Code", "Retriable", "Meaning"), rows)
    return _page("Errors", f'<h1>Errors</h1>{table}<p><a href="/docs">Reference</a></p>')


# --- the reference


def docs_page(document: Mapping[str, Any]) -> str:
    """The reference: every operation with its parameters, body, answers and errors, then every shape."""
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append((method.upper(), path, operation))
    info = document["info"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{_prose(info['description'])} The same as an "
        '<a href="/openapi.json">OpenAPI document</a>; every <a href="/errors">error</a>.</p>',
        _contents(by_tag),
    ]
    for tag in document["tags"]:
        parts.append(f"<h2>{escape(tag['name'].capitalize())}</h2><p>{_prose(tag['description'])}</p>")
        parts += [_operation(*entry) for entry in by_tag[tag["name"]]]
    parts.append("<h2>Shapes</h2>")
    parts += [_shape(name, schema) for name, schema in document["components"]["schemas"].items()]
    return _page("Rallypoint reference", "".join(parts))


def _contents(by_tag: Mapping[str, list[tuple[str, str, Mapping[str, Any]]]]) -> str:
    lines = [
        f'<li><span class="method">{method}</span> <a href="#{operation["operationId"]}"><code>{escape(path)}</code>'
        f"</a> {escape(operation['summary'])}</li>"
        for entries in by_tag.values()
        for method, path, operation in entries
    ]
    return f'<nav aria-label="Operations"><ul>{"".join(lines)}</ul></nav>'


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parameters = _table(
        ("Parameter", "In", "Type", "Meaning"),
        (
            (
                f"<code>{escape(parameter['name'])}</code>{' (required)' if parameter['required'] else ''}",
                parameter["in"],
                _type(parameter["schema"]),
                _prose(parameter["description"]),
            )
            for parameter in operation.get("parameters", ())
        ),
    )
    body = operation.get("requestBody")
    takes = f"<p>Body: {_content(body['content'])}</p>" if body else ""
    answers = _table(
        ("Status", "Answer"),
        ((status, _response(response)) for status, response in operation["responses"].items()),
    )
    more = f"<p>{_prose(operation['description'])}</p>" if "description" in operation else ""
    return (
        f'<section id="{operation["operationId"]}"><h3><span class="method">{method}</span> '
        f"<code>{escape(path)}</code></h3><p>{_prose(operation['summary'])}.</p>"
        f"{more}{parameters}{takes}{answers}</section>"
    )


def _response(response: Mapping[str, Any]) -> str:
    problems = response.get("x-problems")
    if problems:
        return ", ".join(f'<a href="/errors/{slug}">{slug}</a>' for slug in problems)
    return f"{_content(response.get('content', {}))} {_prose(response['description'])}".strip()


def _content(content: Mapping[str, Any]) -> str:
    return ", ".join(_type(media["schema"]) or escape(media_type) for media_type, media in content.items())


def _shape(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = (
        (
            f"<code>{escape(field)}</code>{' (required)' if field in required else ''}",
            _type(field_schema),
            _limits(field_schema),
        )
        for field, field_schema in schema.get("properties", {}).items()
    )
    paragraphs = "".join(f"<p>{_prose(text)}</p>" for text in schema.get("description", "").split("\n\n"))
    table = _table(("Field", "Type", "Limits, default"), rows)
    return f'<section id="{escape(name)}"><h3>{escape(name)}</h3>{paragraphs}{table}</section>'


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a schema in words, with links to shapes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema.get('items', {})) or 'any JSON value'}"
    if kind == "object" and "additionalProperties" in schema and schema["additionalProperties"] is not False:
        inner = schema["additionalProperties"]
        return f"object of {_type(inner) if isinstance(inner, dict) else 'any JSON values'}"
    return escape(kind) if kind else escape(schema.get("description", ""))


_LIMITS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "minLength": "≥ {} characters",
    "maxLength": "≤ {} characters",
    "minItems": "≥ {} entries",
    "maxItems": "≤ {} entries",
    "maxProperties": "≤ {} keys",
}


def _limits(schema: Mapping[str, Any]) -> str:
    choices = [schema, *schema.get("anyOf", ())]
    words = [text.format(choice[key]) for choice in choices for key, text in _LIMITS.items() if key in choice]
    if "default" in schema:
        default = schema["default"]
        shown = {None: "null", True: "true", False: "false", "": '""'}.get(default) if _is_plain(default) else None
        words.append(f"default <code>{escape(shown or str(default))}</code>")
    return ", ".join(words)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | str)
