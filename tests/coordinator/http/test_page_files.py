"""The operators' page as it is served: its headers, its files, and what was vendored."""

import gzip
import hashlib
import json
import re

import pytest

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.coordinator.http.ui.files import HTML, TYPES, PageFiles, read_all, takes_gzip
from tests.coordinator.http.problem_checks import check_problem
from tests.coordinator.http.test_pages import read
from tests.fakes.api_server import ApiClient, open_api
from tests.fakes.fake_service import FakeService
from tests.real.parts import ROOT

FOLDER = ROOT / "coordinator" / "http" / "ui"
STATIC = sorted((FOLDER / "static").iterdir())
VENDOR = FOLDER / "vendor"
VENDORED = json.loads((VENDOR / "vendored.json").read_text())
IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*["']([\w./@-]+)["']""")
COMPRESSED_MAX_BYTES = 100_000
PLAIN = {"Accept-Encoding": "identity"}


async def urls(api: ApiClient) -> list[str]:
    """Of every file that the HTML names."""
    targets = read((await api.request("GET", "/", headers=PLAIN)).body).targets
    return [f"/{target}" for target in targets if target.startswith("ui/")]


async def test_the_policy_lets_nothing_in_but_the_pages_own_files(api: ApiClient) -> None:
    answer = await api.request("GET", "/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split(";"))
    assert rules == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cache-Control"] == "no-cache"


async def test_the_html_has_no_script_or_style_of_its_own_and_links_to_the_reference(api: ApiClient) -> None:
    html = (await api.request("GET", "/", headers=PLAIN)).body.decode()
    assert re.findall(r"<script[^>]*>(.*?)</script>", html) == [""]
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?:", html)
    assert "DIGEST" not in html
    assert "VERSION" not in html
    links = read(html.encode())
    assert {"./docs", "./errors", "./openapi.json", "./metrics", "./readyz"} <= set(links.targets)
    assert not any(target.startswith("/") for target in links.targets), "it must work behind a proxy's prefix"


async def test_every_file_has_its_type_and_is_kept_for_ever(api: ApiClient) -> None:
    named = await urls(api)
    assert len(named) > 20
    for url in named:
        answer = await api.request("GET", url, headers=PLAIN)
        assert answer.status == 200, url
        assert answer.headers["Content-Type"] == TYPES[url.rpartition(".")[2]]
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        head = await api.request("HEAD", url, headers=PLAIN)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["Content-Length"] == answer.headers["Content-Length"] == str(len(answer.body))
        assert head.headers["ETag"] == answer.headers["ETag"]


async def test_a_browser_that_has_a_file_gets_304_and_each_coding_has_its_own_tag(api: ApiClient) -> None:
    script = next(url for url in await urls(api) if url.endswith("/app.js"))
    for url in ("/", script):
        plain = await api.request("GET", url, headers=PLAIN)
        packed = await api.request("GET", url, headers={"Accept-Encoding": "br, gzip"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"
        assert gzip.decompress(packed.body) == plain.body
        assert packed.headers["ETag"] != plain.headers["ETag"]
        for tags in (plain.headers["ETag"], f'"other", W/{plain.headers["ETag"]}'):
            kept = await api.request("GET", url, headers=PLAIN | {"If-None-Match": tags})
            assert (kept.status, kept.body, kept.headers["ETag"]) == (304, b"", plain.headers["ETag"])
        other = {"If-None-Match": plain.headers["ETag"], "Accept-Encoding": "gzip"}
        assert (await api.request("GET", url, headers=other)).status == 200


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [("", False), ("gzip", True), ("br, GZIP;q=0.5", True), ("*", True), ("gzip;q=0", False), ("gzip; q=0.0", False)],
)
def test_gzip_is_sent_to_those_who_take_it(accepted: str, taken: bool) -> None:
    assert takes_gzip(accepted) is taken


@pytest.mark.parametrize(
    "path", ["/ui/{digest}/vendored.json", "/ui/{digest}/index.html", "/ui/{digest}/..%2Ffiles.py", "/ui/old/app.js"]
)
async def test_nothing_else_is_served(api: ApiClient, path: str) -> None:
    answer = await api.request("GET", path.format(digest=PageFiles("0").digest))
    assert check_problem(answer)["status"] == 404


async def test_the_page_needs_no_token_and_the_groups_do(service: FakeService) -> None:
    policy = SecurityPolicy(tokens=(hash_token("secret"),))
    async with open_api(service, policy=policy) as api:
        assert (await api.request("GET", "/")).status == 200
        for url in await urls(api):
            assert (await api.request("GET", url)).status == 200
        assert (await api.request("GET", "/v1/groups")).status == 401


def test_the_page_is_small_on_the_line() -> None:
    page = PageFiles("0")
    assert sum(len(file.compressed) for file in page.files.values()) < COMPRESSED_MAX_BYTES


def test_a_file_that_changes_changes_every_url() -> None:
    texts = read_all()
    assert PageFiles("0").digest == PageFiles("1", texts).digest
    assert PageFiles("0", texts | {"app.js": texts["app.js"] + b" "}).digest != PageFiles("0").digest
    assert PageFiles("0", texts | {"more.js": b""}).digest != PageFiles("0").digest


def test_all_modules_are_reached_and_import_files_that_are_there() -> None:
    texts = {path.name: path.read_text() for path in [*STATIC, *VENDOR.glob("*.js")] if path.suffix == ".js"}
    imported: set[str] = set()
    for name, text in texts.items():
        for target in IMPORT.findall(text):
            assert target.startswith("./"), f"{name} imports {target}, which no browser finds"
            assert target.removeprefix("./") in texts, f"{name}: {target}"
            imported.add(target.removeprefix("./"))
    assert imported | {"app.js"} == set(texts), "a module that nobody imports"


def test_no_text_becomes_markup() -> None:
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerously|\beval\(|new Function|javascript:|srcdoc"
    )
    for path in STATIC:
        assert not sinks.search(path.read_text()), path.name
        assert set(re.findall(r"https?://[\w.]+", path.read_text())) <= {"http://www.w3.org"}, "from another host"


def test_every_vendored_file_is_what_its_note_says() -> None:
    noted = {name: digest for library in VENDORED for name, digest in library["sha256"].items()}
    for name, digest in noted.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    licences = {library["licence_file"] for library in VENDORED}
    assert {path.name for path in VENDOR.iterdir()} == noted.keys() | licences | {"vendored.json"}


def test_every_library_has_its_version_and_licence() -> None:
    words = {"MIT": "Permission is hereby granted", "Apache-2.0": "Apache License"}
    for library in VENDORED:
        assert re.fullmatch(r"\d+\.\d+\.\d+", library["version"])
        assert library["integrity"].startswith("sha512-")
        assert words[library["licence"]] in (VENDOR / library["licence_file"]).read_text()


def test_the_package_takes_all_of_it_along() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert '"rallypoint.coordinator.http.ui" = ["static/*", "vendor/*"]' in project
    assert {path.name for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"} == {
        "static",
        "vendor",
    }
    assert HTML in {path.name for path in STATIC}
