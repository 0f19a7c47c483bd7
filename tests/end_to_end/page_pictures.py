"""The pictures of docs/page.md, anew: `python -m tests.end_to_end.page_pictures`.

A real service and real members: some are killed, one is paused, so that a rebalance waits for it.
"""

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from tests.end_to_end.member_process import MemberProcess
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.end_to_end.test_page import OPTIONS, commit_to_groups, place_of
from tests.real.chromium import Browser, install_libraries
from tests.real.parts import ROOT

DOCS = ROOT / "docs"
NAMES = ("billing-anna", "billing-bert", "billing-carl", "billing-dora")
GROUPS = ("audit", "clicks-hourly", "exports", "fraud-rules", "invoices", "mail-digest", "search-index", "thumbnails")
TOPIC = "payments"
PARTITIONS = 12
STEPS = 36
"""The lag is sampled each half minute, and a minute of it makes a curve."""


def start(service: ServiceProcess, name: str) -> MemberProcess:
    """One of the group "billing", with its own assignor."""
    options = {"coordinator": service.url, "group_id": "billing", "topics": [TOPIC], "client_id": name}
    member = MemberProcess(service.folder, name, {**options, "assignors": ["cooperative-sticky"]})
    member.start()
    member.wait_for("assigned")
    return member


def report(service: ServiceProcess, end: int) -> None:
    """Say to the registry where the partitions end."""
    ends = {str(partition): end + 3 * partition for partition in range(PARTITIONS)}
    assert service.send("PUT", f"/v1/topics/{TOPIC}", {"partitions": PARTITIONS, "end_offsets": ends})[0] == 200


def take(browser: Browser, service: ServiceProcess, members: list[MemberProcess]) -> None:
    """Let things happen, and take the pictures."""
    killed = members.pop(1)
    killed.kill()
    for step in range(STEPS):
        report(service, 400 + step // 4)
        for member in members:
            member.ask("commit")
        time.sleep(2)
    members.append(start(service, "billing-emil"))
    time.sleep(3)
    browser.open(service.url, 1280, 800)
    browser.wait(".badge", text="Live")
    service.send("POST", "/v1/groups/billing/rebalance", {"reason": "a new rack"})
    time.sleep(4)
    service.send("PUT", "/v1/groups/billing/freeze", {"duration_ms": 300_000, "reason": "deploy 4711"})
    browser.wait(".feed li")
    time.sleep(2)
    browser.picture(DOCS / "page-overview.png")
    take_lists(browser)
    browser.go(place_of("groups", "billing", "ownership"))
    browser.wait(".history .segment")
    browser.picture(DOCS / "page-ownership.png")
    browser.go(place_of("groups", "billing", "partitions"))
    browser.wait("tr.row")
    browser.look(1280, 800, "dark")
    browser.picture(DOCS / "page-partitions.png")
    service.send("DELETE", "/v1/groups/billing/freeze")
    members[1].pause()
    service.send("POST", "/v1/groups/billing/rebalance", {"reason": "a new rack"})
    browser.look(1280, 800)
    browser.go(place_of("groups", "billing", "rebalances"))
    browser.wait("tr.awaited")
    time.sleep(5)
    browser.picture(DOCS / "page-rebalance.png")
    browser.go(place_of("groups", "billing"))
    browser.wait(".card.warn")
    browser.look(360, 760, "dark")
    browser.picture(DOCS / "page-narrow.png")
    members[1].resume()


def take_lists(browser: Browser) -> None:
    """What stands still: lists, the lag, and an action that has not been done yet."""
    for name, parts, sign in (
        ("groups", ("groups",), ".row-link"),
        ("topics", ("topics", TOPIC), ".row-link"),
        ("cluster", ("cluster",), "tr.row"),
        ("members", ("groups", "billing", "members"), "tr.row"),
        ("lag", ("groups", "billing", "lag"), ".chart canvas"),
    ):
        browser.go(place_of(*parts))
        browser.wait(sign)
        browser.picture(DOCS / f"page-{name}.png")
    browser.go(place_of("groups", "billing", "members"))
    browser.click("tr.row input[type=checkbox]")
    browser.click(".toolbar button:has-text('Remove')")
    browser.click("dialog button[type=submit]")
    browser.wait("dialog .preview", text="would move")
    browser.picture(DOCS / "page-actions.png")
    browser.press("Escape")


def main() -> None:
    """Take them all."""
    chromium, node, npm = (Path(shutil.which(name) or name) for name in ("chromium", "node", "npm"))
    home = install_libraries(npm)
    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder), *OPTIONS) as service:
        report(service, 400)
        asyncio.run(commit_to_groups(service.url, list(GROUPS)))
        members = [start(service, name) for name in NAMES]
        browser = Browser([node, home / "chromium.mjs", chromium], Path(folder) / "profile")
        try:
            take(browser, service, members)
        finally:
            browser.end()
            for member in members:
                member.make_sure_it_is_gone()


if __name__ == "__main__":
    main()
