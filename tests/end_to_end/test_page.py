"""The operators' page in a real browser, over a real service with real members."""

import asyncio
import re
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.core.records import GroupRecord, OffsetRecord
from rallypoint.coordinator.storage.codec import encode
from rallypoint.coordinator.storage.contract import Write, shard_keyspace
from rallypoint.coordinator.storage.sqlite_file import Batch, SqliteFile
from rallypoint.protocol.group_hash import shard_of_group
from tests.end_to_end.member_process import MemberProcess, running_members
from tests.end_to_end.program_process import ProgramProcess
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.real.chromium import Browser
from tests.sizes import by_size, in_long

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OPTIONS = ("--group-initial-rebalance-delay-ms", "0", "--group-join-linger-ms", "0")
HOSTILE = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "'\"`${document.title='owned'}",
    "%2e%2e",
    "..%2F..%2Fdocs",
    "a/b?c#d&e=f",
    "right \u202e to left \u2066 and \u200b nothing",
    "a" * 255,
    "\U0001f98a \u0639\u0631\u0628\u064a",
    "javascript:document.title='owned'",
)
MEMBERS = ("anna", "bert", "carl\u200b")
"""The last one's name ends in a mark that nobody sees."""
MANY = 10_000
SHARDS = 8
"""Of the store with that many groups."""
ROWS_MAX = 150
"""Rows in the document, however long the list."""


async def commit_to_groups(url: str, group_ids: list[str], at_once: int = 24, token: str = "") -> None:
    """A commit makes each of them."""
    body = {"generation_id": -1, "member_id": "", "offsets": {"clicks": {"0": {"offset": 7}}}}
    waiting = iter(group_ids)

    async def work(session: aiohttp.ClientSession) -> None:
        for group_id in waiting:
            path = f"/v1/groups/{urllib.parse.quote(group_id, safe='')}/offsets"
            target = URL(url + path, encoded=True)
            async with session.post(target, json=body) as answer:
                assert answer.status == 200, await answer.text()

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        await asyncio.gather(*(work(session) for _ in range(at_once)))


def place_of(*parts: str) -> str:
    """Where the page shows it: what follows `#`."""
    return "#/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)


def seen(text: str) -> str:
    """As the page shows it: what turns a text, or is not seen, by its number."""
    return text.replace("\u202e", "U+202E").replace("\u200b", "U+200B")


def choose(page: Browser, selector: str, value: str) -> None:
    """Choose in a list."""
    page.evaluate(f"""{{
      const field = document.querySelector("{selector}");
      field.value = "{value}";
      field.dispatchEvent(new Event("change", {{ bubbles: true }}));
    }}""")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service"), *OPTIONS) as running:
        yield running


@pytest.fixture(scope="module")
def members(service: ServiceProcess) -> Iterator[list[MemberProcess]]:
    """Three of the group "clicks"; the first is static."""
    folder = service.folder / "members"
    folder.mkdir()
    options: dict[str, Any] = {"session_timeout_ms": 30_000}
    with running_members(folder, service, MEMBERS, **options) as running:
        yield running


def member_options(service: ServiceProcess, name: str) -> dict[str, Any]:
    """Of a member that is started later."""
    return {"coordinator": service.url, "group_id": "clicks", "topics": ["clicks"], "client_id": name}


@pytest.fixture
def page(browser: Browser, service: ServiceProcess, members: list[MemberProcess]) -> Iterator[Browser]:
    """The overview, live. In the end no script has failed, and the policy has refused nothing."""
    browser.open(service.url)
    browser.wait("header .badge.ok", text="Live")
    yield browser
    assert browser.complaints() == []


def test_the_overview_says_what_there_is(page: Browser) -> None:
    assert "with 3 members" in page.wait(".explanation", text="group")
    page.wait("dl.figures dd", text="3")
    page.click("main a.button")
    page.wait("h1", text="Groups")
    page.wait(".row-link", text="clicks")


def test_a_group_shows_its_members_and_what_each_owns(page: Browser) -> None:
    page.go(place_of("groups", "clicks"))
    page.wait("h1", text="clicks")
    page.wait(".badge", text="Stable")
    page.press("2")
    page.wait("a[aria-current]", text="Members")
    for name in ("anna", "bert", "carl"):
        assert "clicks" in page.wait("tr.row", text=name)
    page.fill("input[type=search]", "bert")
    page.wait("tr.row", text="anna", gone=True)
    assert page.evaluate("location.hash") == "#/groups/clicks/members?member=bert"


def test_a_group_that_is_not_there_yet_is_shown_once_it_is(page: Browser, service: ServiceProcess) -> None:
    page.go(place_of("groups", "to-come"))
    page.wait(".notice:not(.err)", text="There is no group 'to-come'. This page shows it as soon as there is one.")
    asyncio.run(commit_to_groups(service.url, ["to-come"]))
    page.wait("h1 + .badges .badge", text="Empty")
    page.wait("main > section > .notice", gone=True)


def test_what_happens_is_seen_without_a_reload(page: Browser, service: ServiceProcess) -> None:
    page.go(place_of("groups", "clicks"))
    page.wait("h1", text="clicks")
    status, answer = service.send("POST", "/v1/groups/clicks/rebalance", {"reason": "a new <b>rack</b>"})
    assert (status, answer["started"]) == (200, True)
    page.wait(".card", text="a new <b>rack</b>")
    page.go(place_of("groups", "clicks", "rebalances"))
    page.wait(".waterfall h2", text=f"Rebalance {answer['rebalance_id']}")
    page.wait(".badge", text="completed")
    last = service.send("GET", "/v1/groups/clicks/rebalances")[1]["rebalances"][0]
    assert (last["rebalance_id"], last["outcome"]) == (answer["rebalance_id"], "completed")
    page.go(place_of("groups", "clicks"))
    page.wait(".card", text=seen(last["sentence"]))


def test_a_freeze_is_shown_first_and_then_done(page: Browser, service: ServiceProcess) -> None:
    page.go(place_of("groups", "clicks"))
    page.click("button:has-text('Freeze')")
    page.wait("dialog")
    page.fill("dialog input[type=text]", "deploy 4711")
    assert page.evaluate("document.querySelector('dialog .buttons button:last-child').disabled") is True
    page.click("dialog button[type=submit]")
    page.wait("dialog .preview", text="no rebalance of 3 members begins")
    assert service.send("GET", "/v1/groups/clicks")[1]["frozen_until_ms"] is None, "nothing is done yet"
    page.click("dialog .buttons button:last-child")
    page.wait("dialog .done", text="frozen until")
    page.press("Escape")
    page.wait("dialog", gone=True)
    page.wait(".badge", text="frozen, ")
    assert "deploy 4711" in page.wait(".card.cold")
    page.click("button:has-text('End the freeze')")
    page.click("dialog button[type=submit]")
    page.wait("dialog .preview", text="Nothing was held back")
    page.click("dialog .buttons button:last-child")
    page.wait("dialog .done")
    page.press("Escape")
    page.wait(".card.cold", gone=True)


def test_a_rebalance_that_hangs_names_who_it_waits_for(
    page: Browser, service: ServiceProcess, members: list[MemberProcess]
) -> None:
    members[2].pause()
    try:
        page.go(place_of("groups", "clicks", "rebalances"))
        page.wait(".waterfall")
        service.send("POST", "/v1/groups/clicks/rebalance", {"reason": "to see \u202e it hang"})
        page.wait("h1 + .badges .badge", text="Joining")
        assert "carl" in page.wait("tr.awaited", text="has not joined")
        said = service.send("GET", "/v1/groups/clicks")[1]["explanation"]
        assert "carl" in said
        shown = page.wait(".explanation", text="carl")
        without_times = [re.sub(r"([\d.]+ (ms|s|min)\b ?)+", "", text) for text in (shown, seen(said))]
        assert without_times[0] == without_times[1], "the page has the API's own words"
        for place in (".card", ".waterfall .lead", "td.sentence"):
            page.go(place_of("groups", "clicks", *(() if place == ".card" else ("rebalances",))))
            page.wait(place, text="to see U+202E it hang")
            assert not page.evaluate("document.querySelector('main').textContent.includes('\\u202e')")
        page.click("button:has-text('Go on without 1')")
        page.click("dialog button[type=submit]")
        page.wait("dialog .preview", text="1 member would be left out")
        page.press("Escape")
    finally:
        members[2].resume()
    page.wait("h1 + .badges .badge", text="Stable")
    page.wait("tr.awaited", gone=True)


def test_a_killed_members_partitions_are_seen_to_move(
    page: Browser, service: ServiceProcess, members: list[MemberProcess], tmp_path: Path
) -> None:
    """Who owns partition 3, and who had it before: by the table, and by the history."""
    before = service.send("GET", "/v1/groups/clicks/owner?topic=clicks&partition=3")[1]["owner"]["client_id"]
    killed = next(member for member in members if member.name == before)
    page.go(place_of("groups", "clicks", "partitions") + "?partition=3")
    assert seen(before) in page.wait("tr.row")
    killed.kill()
    page.wait("h1 + .badges .badge", text="Stable")
    row = "tr.row td:nth-child(4)"
    page.wait(row, text=seen(before))
    after = service.send("GET", "/v1/groups/clicks/owner?topic=clicks&partition=3")[1]["owner"]["client_id"]
    assert after != before
    page.wait("tr.row td:nth-child(2)", text=seen(after))
    page.go(place_of("groups", "clicks", "ownership") + "?topic=clicks&partition=3")
    page.wait(f".history tbody tr .segment[title^='{before}']")
    page.wait(f".history tbody tr .segment:last-child[title^='{after}']")
    members.remove(killed)
    again = MemberProcess(tmp_path, killed.name, member_options(service, killed.name))
    again.start()
    members.append(again)
    page.go(place_of("groups", "clicks", "members"))
    page.wait("tr.row", text=seen(killed.name))


def test_the_lag_says_when_it_will_be_gone(
    page: Browser, service: ServiceProcess, members: list[MemberProcess]
) -> None:
    status, _ = service.send(
        "PUT", "/v1/topics/clicks", {"partitions": 6, "end_offsets": {str(p): 1000 for p in range(6)}}
    )
    assert status == 200
    for member in members:
        assert member.ask("commit").what == "committed"
    page.go(place_of("groups", "clicks", "lag"))
    said = service.send("GET", "/v1/groups/clicks/lag")[1]
    assert said["lag"] > 0
    page.wait(".lead", text=said["eta_sentence"].split(".")[0])
    page.wait(".figure", text=f"{said['lag']:,}")
    page.go(place_of("groups", "clicks", "partitions"))
    page.wait("tr.row", text="1,000")


def test_removing_a_member_shows_what_moves_first(
    page: Browser, service: ServiceProcess, members: list[MemberProcess]
) -> None:
    page.go(place_of("groups", "clicks", "members"))
    page.wait("tr.row", text=members[0].name)
    page.click(f"tr.row:has-text('{members[0].name}') input[type=checkbox]")
    page.click(".toolbar button:has-text('Remove')")
    page.click("dialog button[type=submit]")
    page.wait("dialog .preview", text="would be removed")
    page.wait("dialog .preview", text="would move")
    page.click("dialog .buttons button:last-child")
    page.wait("dialog .done", text="1 member removed")
    page.press("Escape")
    page.go(place_of("groups", "clicks", "rebalances"))
    page.wait("table.rebalances tr", text="removed")


@pytest.mark.parametrize("to", [in_long("latest"), "time"])
def test_a_reset_shows_each_partition_before_and_after(page: Browser, service: ServiceProcess, to: str) -> None:
    topic = f"of-{to}"  # of its own: what others report of theirs counts, too
    commit = {"generation_id": -1, "member_id": "", "offsets": {topic: {"0": {"offset": 7}}}}
    assert service.send("POST", f"/v1/groups/to-{to}/offsets", commit)[0] == 200
    ends = {"partitions": 6, "end_offsets": {"0": 1234}}
    assert service.send("PUT", f"/v1/topics/{topic}", ends)[0] == 200
    page.go(place_of("groups", f"to-{to}", "actions"))
    page.click("button:has-text('Reset offsets')")
    choose(page, "dialog select", to)
    if to == "time":
        page.fill("dialog input[type=datetime-local]", "2099-01-01T00:00:00")
    page.click("dialog button[type=submit]")
    row = page.wait("dialog .preview tbody tr", text="+1,227")
    assert ("as reported at" in row) == (to == "time")
    page.click("dialog .buttons button:last-child")
    page.wait("dialog .done", text="1 partition reset")
    offsets = service.send("GET", f"/v1/groups/to-{to}/offsets")[1]["offsets"]
    assert offsets[topic]["0"]["offset"] == 1234


def test_mistyped_partitions_are_not_taken_for_all(page: Browser, service: ServiceProcess) -> None:
    ends = {"0": {"offset": 7}, "1": {"offset": 8}}
    commit = {"generation_id": -1, "member_id": "", "offsets": {"some": ends}}
    assert service.send("POST", "/v1/groups/of-some/offsets", commit)[0] == 200
    page.go(place_of("groups", "of-some", "actions"))
    page.click("button:has-text('Delete offsets')")
    choose(page, "dialog select", "some")
    for mistyped in ("0 1", "1-0", ",", "-"):
        page.fill("dialog input[placeholder]", mistyped)
        page.click("dialog button[type=submit]")
        page.wait("dialog .notice.err", text=f'"{mistyped}" names no partitions')
    page.fill("dialog input[placeholder]", " 1-1 ")
    page.click("dialog button[type=submit]")
    page.wait("dialog .preview", text="The offsets of 1 partition would be deleted")
    page.press("Escape")
    page.click("button:has-text('Reset offsets')")
    choose(page, "dialog label:nth-of-type(2) select", "some")
    page.fill("dialog input[placeholder]", "0 1")
    page.click("dialog button[type=submit]")
    page.wait("dialog .notice.err", text="names no partitions")
    page.press("Escape")


def test_the_service_goes_away_and_comes_back(page: Browser, service: ServiceProcess) -> None:
    page.go(place_of("groups"))
    page.wait(".row-link", text="clicks")
    service.kill()
    page.wait("header .badge", text="Not live for")
    page.wait(".notice.err", text="cannot be reached")
    assert page.texts(".row-link"), "what was known stays in sight"
    for unread in ("#/groups?search=another", "#/topics"):
        page.go(unread)
        page.wait("h1", text="Topics" if "topics" in unread else "Groups")
        page.wait(".notice.err", text="cannot be reached")
        page.wait(".empty", gone=True)
    assert page.texts(".elsewhere") == [], "there is no other node"
    service.start()
    page.wait("header .badge.ok", text="Live")
    page.wait(".notice.err", gone=True)
    asyncio.run(commit_to_groups(service.url, ["afterwards"]))
    page.go(place_of())
    page.wait(".feed li", text="afterwards was created")


def test_a_service_that_stands_still_is_not_waited_for_for_ever(page: Browser, service: ServiceProcess) -> None:
    """Its connections stay open, so nothing fails."""
    service.pause()
    try:
        page.go(place_of("topics"))
        page.wait(".notice.err", text="has not answered for 20 s", seconds=60)
    finally:
        service.resume()
    page.wait(".notice.err", gone=True)


def test_hostile_ids_are_texts_everywhere(page: Browser, service: ServiceProcess) -> None:
    asyncio.run(commit_to_groups(service.url, list(HOSTILE)))
    for topic in HOSTILE[:4]:
        assert service.send("PUT", f"/v1/topics/{urllib.parse.quote(topic, safe='')}", {"partitions": 2})[0] == 200
    page.go(place_of("groups"))
    page.wait(".row-link", text=HOSTILE[0])
    assert any("U+202E" in text for text in page.texts(".row-link")), "what turns the text is shown by its number"
    for group_id in HOSTILE:
        page.go(place_of("groups", group_id))
        page.wait("dl.figures")
        assert page.evaluate("document.querySelector('h1').textContent").startswith(group_id[:5])
        assert page.texts(".notice.err") == [], group_id
    page.go(place_of("groups", HOSTILE[0], "actions"))
    page.click("button:has-text('Delete the group')")
    page.click("dialog button[type=submit]")
    page.wait("dialog .preview", text="1 partition")
    page.fill("dialog input", HOSTILE[0])
    page.click("dialog .buttons button:last-child")
    page.wait("dialog .done", text="deleted")
    page.press("Escape")
    page.wait("h1", text="Groups")
    page.go(place_of("topics"))
    page.wait(".row-link", text=HOSTILE[1])
    assert page.evaluate("document.title").endswith("Rallypoint")
    assert page.evaluate("document.images.length") == 0


def test_the_token_is_asked_for_and_stays_out_of_every_url(browser: Browser, tmp_path: Path) -> None:
    with running_service(tmp_path, "--tokens", hash_token("open sesame")) as service:
        browser.open(service.url)
        browser.wait("h1", text="A token, please")
        browser.fill("input[type=password]", "wrong")
        browser.click("button[type=submit]")
        browser.wait("form", text="does not know this token")
        browser.fill("input[type=password]", "open sesame")
        browser.click("button[type=submit]")
        browser.wait("h1", text="Overview")
        browser.wait("header .badge.ok", text="Live")
        used = "performance.getEntries().map((entry) => entry.name).join() + location.href + document.cookie"
        assert "sesame" not in browser.evaluate(used)
        assert browser.evaluate("Object.values(localStorage).join()") == ""
        browser.evaluate("location.reload()")
        browser.wait("header .badge.ok", text="Live")
        browser.click("button:has-text('Forget the token')")
        browser.wait("h1", text="A token, please")
        assert browser.complaints() == []


def test_what_the_viewer_may_not_do_is_greyed_and_says_so(browser: Browser, tmp_path: Path) -> None:
    rule = '[[allow]]\nwho = ["token:{}"]\nmay = [{}]\non = ["group:*", "topic:*"]\n'
    maker, policy = rule.format("maker", '"*"'), tmp_path / "access.toml"
    policy.write_text(maker + rule.format("viewer", '"describe"'))
    (tmp_path / "tokens").write_text(f"maker {hash_token('made')}\nviewer {hash_token('seen')}\n")
    with running_service(tmp_path, "--token-file", str(tmp_path / "tokens"), "--access", str(policy)) as service:
        asyncio.run(commit_to_groups(service.url, ["clicks"], token="made"))
        browser.open(f"{service.url}/{place_of('groups', 'clicks', 'actions')}")
        browser.fill("input[type=password]", "seen")
        browser.click("button[type=submit]")
        browser.wait("ul.actions", text="You do not have the right “offsets” on this group.")
        buttons = "Array.from(document.querySelectorAll('.quick button, ul.actions button'))"
        enabled = buttons + ".filter((one) => !one.disabled).map((one) => one.textContent).join()"
        assert browser.evaluate(enabled) == ""
        policy.write_text(maker + rule.format("viewer", '"describe", "operate"'))
        browser.wait("ul.actions", text="You do not have the right “operate”", gone=True)
        assert "Freeze…" in browser.evaluate(enabled)
        assert "Reset offsets…" not in browser.evaluate(enabled)
        assert "Delete the group…" not in browser.evaluate(enabled)


def store_groups(path: Path, group_ids: list[str]) -> None:
    """A store as it would be if a service had made these groups by a commit for each, which takes ten times as long."""
    file = SqliteFile(path)
    now_ms = int(time.time() * 1000)
    writes: dict[int, list[Write]] = {}
    for group_id in group_ids:
        records = (
            GroupRecord(group_id, None, None, 0, 0, None, now_ms),
            OffsetRecord(group_id, "clicks", 0, 7, None, "", now_ms),
        )
        writes.setdefault(shard_of_group(group_id, SHARDS), []).extend(encode(record) for record in records)
    keyspaces = {shard_keyspace(shard): of_shard for shard, of_shard in writes.items()}
    stored = file.append([Batch(name, file.acquire(name), of_shard) for name, of_shard in keyspaces.items()])
    assert stored == [None] * len(keyspaces)
    file.close()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Ten thousand groups, and one of a thousand members."""
    folder = tmp_path_factory.mktemp("crowded")
    store_groups(folder / "rallypoint.db", [f"group-{i:05}" for i in range(MANY)])
    with running_service(folder, *OPTIONS, "--group-max-size", "2000", "--shards", str(SHARDS)) as service:
        arguments = ("--port", str(service.port), "--members", "1000", "--group-size", "1000", "--group-prefix", "big")
        residents = ProgramProcess(service.folder, "residents", "bench.residents", arguments)
        try:
            residents.start()
            residents.wait_for("settled", seconds=90)
            yield service
        finally:
            residents.make_sure_it_is_gone()


def test_ten_thousand_groups_scroll_search_and_sort(browser: Browser, crowded: ServiceProcess) -> None:
    browser.open(crowded.url + "/" + place_of("groups"))
    browser.wait(".head p", text="10,001 groups")
    browser.wait(".row-link", text="group-00000")
    assert len(browser.texts("tr.row")) < ROWS_MAX
    browser.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    browser.wait(".row-link", text="group-050")
    browser.evaluate("scrollTo(0, document.body.scrollHeight)")
    browser.wait(".row-link", text="group-09999")
    assert len(browser.texts("tr.row")) < ROWS_MAX
    browser.evaluate("scrollTo(0, 0)")
    browser.press("/")
    browser.fill("input[type=search]", "P-0777")
    browser.wait(".head p", text="10 groups of 10,001")
    browser.fill("input[type=search]", "")
    browser.wait(".head p", text="10,001 groups")
    browser.click("button.sort:has-text('Members')")
    browser.wait("tbody tr.row:first-child .row-link", text="big-0")
    assert browser.evaluate("location.hash") == "#/groups?sort=member_count&descending=true"
    browser.press("j", "Enter")
    browser.wait("h1", text="big-0")
    assert browser.complaints() == []


def test_a_group_of_a_thousand_members_is_whole_and_quick(browser: Browser, crowded: ServiceProcess) -> None:
    browser.open(crowded.url + "/" + place_of("groups", "big-0", "members"))
    browser.wait(".toolbar", text="1,000 members")
    assert len(browser.texts("tr.row")) < ROWS_MAX
    browser.evaluate("scrollTo(0, document.body.scrollHeight)")
    browser.wait("tr.row[aria-rowindex='1001']")
    assert browser.complaints() == []
    assert browser.violations() == []


VIEWS = (
    ((), "h1"),
    (("groups",), ".row-link"),
    (("groups", "clicks"), ".cards"),
    (("groups", "clicks", "members"), "tr.row"),
    (("groups", "clicks", "partitions"), "tr.row"),
    (("groups", "clicks", "rebalances"), ".waterfall"),
    (("groups", "clicks", "ownership"), ".history"),
    (("groups", "clicks", "lag"), ".lead"),
    (("groups", "clicks", "actions"), ".actions"),
    (("topics",), ".row-link"),
    (("topics", "clicks"), ".row-link"),
    (("cluster",), "tr.row"),
)


LOOKS = ((360, "dark"), (1600, "light"), (360, "light"), (800, "dark"))[: by_size(0, 2, 4)]


def test_every_view_is_accessible_and_fits(page: Browser) -> None:
    # In one page for all: what looks for faults in it is compiled anew in each.
    wrong: list[str] = []
    for width, scheme in LOOKS:
        page.look(width, scheme=scheme)
        for parts, sign in VIEWS:
            page.go(place_of(*parts))
            page.wait(sign)
            found = page.violations()
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found.append("it is wider than the window")
            wrong += [f"{width} {scheme} {place_of(*parts)}: {violation}" for violation in found]
    assert wrong == []
