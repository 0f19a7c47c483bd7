"""The operators' page as answers: its HTML, and the files that the HTML names.

There is no build: a browser gets the files of `static` and `vendor` as they lie here. Their URLs hold a digest of all
of them together, so a browser keeps them for ever, and a new release brings new URLs. The HTML is asked for each time.

The policy lets nothing in from another host, and no script or style that is not one of these files. A group's id or a
client's reason is a stranger's text; even if the page put it into the document as HTML, the browser would refuse.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources

from aiohttp import web

from rallypoint.coordinator.http.errors import refuse_http
from rallypoint.coordinator.http.requests.routes import Answer

HTML = "index.html"
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
"""What is served, by the end of its name. Licences and notes lie beside it, and are not."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_EVERY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
    "Server": "rallypoint",
}
_OF_HTML = {
    **_EVERY,
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-cache",
}
_OF_FILES = {**_EVERY, "Cache-Control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file's bytes, plain and compressed, and the headers of every answer with it."""

    plain: bytes
    compressed: bytes
    digest: str
    headers: Mapping[str, str]

    def answer(self, request: web.BaseRequest) -> web.Response:
        """The file, or 304 if the client has it."""
        is_compressed = takes_gzip(request.headers.get("Accept-Encoding", ""))
        # Each form has its own tag: a cache must not take one for the other.
        tag = f'"{self.digest}{"-gzip" if is_compressed else ""}"'
        headers = {**self.headers, "ETag": tag}
        if tag in _tags(request.headers.get("If-None-Match", "")):
            del headers["Content-Type"]
            return web.Response(status=304, headers=headers)
        if is_compressed:
            return web.Response(body=self.compressed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=self.plain, headers=headers)


class PageFiles:
    """All files of the page. `html` and `file` are handlers of their paths."""

    path = "ui/{digest}/{file}"
    """Of every file but the HTML. It names them relative to itself, so the page works behind a proxy's prefix."""

    def __init__(self, version: str, texts: Mapping[str, bytes] | None = None) -> None:
        """`texts`: every file by its name, the HTML among them; by default those of the package."""
        texts = dict(read_all() if texts is None else texts)
        html = texts.pop(HTML).decode()
        together = hashlib.sha256()
        for name in sorted(texts):
            together.update(f"{name}\0{len(texts[name])}\0".encode() + texts[name])
        self.digest = together.hexdigest()[:16]
        modules = "".join(f'<link rel="modulepreload" href="ui/DIGEST/{name}">' for name in sorted(_modules(texts)))
        html = (
            html.replace("<!--modules-->", modules).replace("DIGEST", self.digest).replace("VERSION", escape(version))
        )
        self._html = _page_file(HTML, html.encode(), _OF_HTML)
        self.files: Mapping[str, PageFile] = {name: _page_file(name, text, _OF_FILES) for name, text in texts.items()}

    async def html(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """The page itself. It holds nothing of groups, so it needs no token; it asks for one if the API does."""
        return self._html.answer(request)

    async def file(self, request: web.BaseRequest, ids: Mapping[str, str], query: str) -> Answer:
        """One of its files. A URL of another release leads nowhere: files of two releases do not fit together."""
        found = self.files.get(ids["file"]) if ids["digest"] == self.digest else None
        if found is None:
            raise refuse_http(404, "The page of this release has no such file; load `/` again.")
        return found.answer(request)


def takes_gzip(accepted: str) -> bool:
    """Whether an `Accept-Encoding` allows gzip."""
    for entry in accepted.split(","):
        coding, _, parameters = entry.partition(";")
        if coding.strip().lower() in {"gzip", "*"}:
            weight = parameters.replace(" ", "").lower().removeprefix("q=")
            return weight.strip("0.") != "" or not parameters
    return False


def _tags(header: str) -> set[str]:
    return {entry.strip().removeprefix("W/") for entry in header.split(",")}


def read_all() -> dict[str, bytes]:
    """Every file of the package that is served, by its name."""
    here = resources.files(__package__)
    return {
        entry.name: entry.read_bytes()
        for folder in ("static", "vendor")
        for entry in here.joinpath(folder).iterdir()
        if entry.name.rpartition(".")[2] in TYPES
    }


def _modules(texts: Mapping[str, bytes]) -> list[str]:
    return [name for name in texts if name.endswith(".js")]


def _page_file(name: str, text: bytes, headers: Mapping[str, str]) -> PageFile:
    return PageFile(
        plain=text,
        # Without a time in it, so that every node of a release serves the same bytes.
        compressed=gzip.compress(text, 9, mtime=0),
        digest=hashlib.sha256(text).hexdigest()[:32],
        headers={"Content-Type": TYPES[name.rpartition(".")[2]], **headers},
    )
