"""The operators' page at three nodes on a real etcd: where it leads to, and what it says when its own node is gone."""

import time
from pathlib import Path

import pytest

from tests.end_to_end.service_process import ServiceProcess
from tests.end_to_end.test_cluster import GROUPS, SHARDS, commit, settled
from tests.end_to_end.test_page import place_of
from tests.end_to_end.three_nodes import three_nodes
from tests.real.chromium import Browser

pytestmark = [pytest.mark.browser, pytest.mark.etcd, pytest.mark.slow]

GROUP = GROUPS[0]
SECONDS = 30.0
NODES_ARE_READ = "performance.getEntriesByType('resource').some((one) => new URL(one.name).pathname === '/v1/cluster')"


def by_coordinator(nodes: list[ServiceProcess]) -> tuple[ServiceProcess, list[ServiceProcess]]:
    """The node that coordinates the group, and the others that run."""
    until = time.monotonic() + SECONDS
    while True:
        statuses = [node.send("GET", f"/v1/groups/{GROUP}")[0] for node in nodes]
        if statuses.count(200) == 1:
            here = nodes[statuses.index(200)]
            return here, [node for node in nodes if node is not here]
        assert time.monotonic() < until, statuses
        time.sleep(0.1)


def test_any_node_leads_to_the_one_that_coordinates_and_to_others_when_it_is_gone(
    browser: Browser, tmp_path: Path
) -> None:
    with three_nodes(tmp_path, shards=SHARDS) as nodes:
        settled(nodes)
        for group_id in GROUPS:
            commit(nodes, group_id)
        here, (there, _) = by_coordinator(nodes)
        browser.open(there.url)
        browser.wait("header .badge.ok", text="Live", seconds=SECONDS)
        everything_is_listed(browser)
        an_event_of_another_node_is_seen(browser, here)
        browser.go(place_of("groups", GROUP, "actions"))
        browser.click(".notice a.button:has-text('Open it there')")
        an_action_is_done(browser, here)
        browser.wait("header .badge.ok", text="Live", seconds=SECONDS)
        others_are_named_when_it_is_killed(browser, here)
        browser.click(".elsewhere a.button")
        rest = [node for node in nodes if node is not here]
        now_here, _ = by_coordinator(rest)
        browser.wait("h1", text=GROUP, seconds=SECONDS)
        if not browser.evaluate("location.href").startswith(now_here.url):
            browser.click(f".notice a.button[href^='{now_here.url}']")
        browser.wait(".actions", seconds=SECONDS)
        assert browser.evaluate("location.href") == f"{now_here.url}/{place_of('groups', GROUP, 'actions')}"
        assert browser.complaints() == []


def everything_is_listed(browser: Browser) -> None:
    browser.go(place_of("groups"))
    browser.wait(".head p", text=f"{len(GROUPS)} groups", seconds=SECONDS)
    browser.go(place_of("cluster"))
    for name in ("n0", "n1", "n2"):
        browser.wait("tr.row", text=name, seconds=SECONDS)


def an_event_of_another_node_is_seen(browser: Browser, here: ServiceProcess) -> None:
    browser.go(place_of())
    assert here.send("PUT", f"/v1/groups/{GROUP}/freeze", {"duration_ms": 300_000})[0] == 200
    browser.wait(".feed li", text=f"{GROUP} is frozen", seconds=SECONDS)


def an_action_is_done(browser: Browser, here: ServiceProcess) -> None:
    browser.wait(".actions", seconds=SECONDS)
    browser.click("button:has-text('End the freeze')")
    browser.click("dialog button[type=submit]")
    browser.wait("dialog .preview", text="Nothing was held back", seconds=SECONDS)
    browser.click("dialog .buttons button:last-child")
    browser.wait("dialog .done", text="The freeze is over", seconds=SECONDS)
    browser.press("Escape")
    assert here.send("GET", f"/v1/groups/{GROUP}")[1]["frozen_until_ms"] is None


def others_are_named_when_it_is_killed(browser: Browser, here: ServiceProcess) -> None:
    browser.wait("h1", text=GROUP)
    until = time.monotonic() + SECONDS
    while not browser.evaluate(NODES_ARE_READ):
        assert time.monotonic() < until, "the page has not asked for the nodes"
        time.sleep(0.1)
    here.kill()
    browser.wait(".elsewhere", text="Others of the cluster", seconds=SECONDS)
    links = browser.texts(".elsewhere a.button")
    assert len(links) == 2
    assert set(links) < {"n0", "n1", "n2"}
    assert browser.violations() == []
