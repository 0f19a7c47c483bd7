"""What the process makes of its settings before it serves."""

import asyncio
import logging
import socket
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from annotated_types import Le

from rallypoint.coordinator.http.api import HttpApi
from rallypoint.coordinator.limits import FIXED, NAMES, Limits, limits_of
from rallypoint.coordinator.main import (
    StartError,
    advertised_url,
    bind,
    connections_within,
    give_up_the_unreachable,
    hand_over_everything,
    policy_of,
    stop_serving,
)
from rallypoint.coordinator.runtime.cluster.member_node import MemberNode
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.settings import Settings, load_settings
from rallypoint.coordinator.storage.contract import Store
from rallypoint.protocol.limits import SETTABLE


def values_of(limits: Limits) -> dict[str, int]:
    """Each limit by its name."""
    parts = (
        limits.requests, limits.bodies, limits.connections, limits.channels, limits.streams, limits.rules,
        limits.capacity,
    )  # fmt: skip
    of_parts = {name: value for part in parts for name, value in asdict(part).items()}
    batch = {f"storage_batch_{name}": value for name, value in asdict(limits.batch).items()}
    return of_parts | batch | {"preview_size_max": limits.preview_size_max}


def test_every_limit_comes_from_its_setting_or_is_fixed() -> None:
    settable = NAMES & Settings.model_fields.keys()
    given = {name: number for number, name in enumerate(sorted(settable), start=10_000)}
    given |= {"group_max_session_timeout_ms": 50_000, "bodies_max_bytes": 40_000_000}
    assert values_of(limits_of(Settings.model_validate(given))) == {**FIXED, **given}


def test_the_defaults_of_the_parts_are_those_of_the_settings() -> None:
    limits = limits_of(load_settings({"storage": "memory:"}))
    for part in (limits.requests, limits.bodies, limits.connections, limits.channels, limits.streams, limits.rules):
        assert part == type(part)()
    assert limits.capacity == type(limits.capacity)()


def test_a_test_can_have_any_limit() -> None:
    small = dict.fromkeys(NAMES, 1)
    assert values_of(limits_of(load_settings({}), small)) == small


def test_what_a_refusal_may_say_is_a_setting_is_one() -> None:
    assert Settings.model_fields.keys() >= SETTABLE
    assert FIXED.keys().isdisjoint(SETTABLE)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("rally.example.org", "http://rally.example.org:8000"),
        ("0.0.0.0", f"http://{socket.gethostname().lower()}:8000"),
        ("::", f"http://{socket.gethostname().lower()}:8000"),
    ],
)
def test_the_url_to_tell_is_made_from_the_address(host: str, url: str) -> None:
    assert advertised_url("http", host, 8000) == url
    assert advertised_url("https", host, 8000) == url.replace("http", "https")


def test_own_names_and_origins_are_let_in() -> None:
    settings = Settings(
        host="10.0.0.5",
        insecure=True,
        advertised_url="https://Rally.example.org",
        allowed_hosts=("other.example.org",),
        allowed_origins=("https://console.example.org",),
    )
    policy = policy_of(settings, settings.advertised_url or "")
    assert policy.hosts == {"10.0.0.5", "rally.example.org", "other.example.org"}
    assert policy.origins == {"https://rally.example.org", "https://console.example.org"}


def test_port_0_binds_one_address() -> None:
    listeners = bind("localhost", 0)
    try:
        assert len(listeners) == 1
        port = listeners[0].getsockname()[1]
        assert port > 0
        with pytest.raises(StartError, match="in use by another program"):
            bind(listeners[0].getsockname()[0], port)
    finally:
        for listener in listeners:
            listener.close()


def test_an_address_of_another_machine_is_one_sentence() -> None:
    with pytest.raises(StartError, match=r"The address 192\.0\.2\.1, port 0, cannot be listened on: "):
        bind("192.0.2.1", 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is told how long to try")
def test_connections_inherit_how_long_the_system_tries_to_reach_their_other_side() -> None:
    (listener,) = bind("127.0.0.1", 0)
    with listener, socket.socket() as client:
        give_up_the_unreachable(listener, 20_000)
        client.connect(listener.getsockname())
        taken, _ = listener.accept()
        with taken:
            options = [
                taken.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
            ]
    assert options == [20_000, 10, 2]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is told how long to try")
def test_the_system_takes_the_longest_time_that_the_setting_allows() -> None:
    (most,) = [
        rule.le for rule in Settings.model_fields["connection_unreachable_timeout_ms"].metadata if isinstance(rule, Le)
    ]
    assert isinstance(most, int)
    (listener,) = bind("127.0.0.1", 0)
    with listener:
        give_up_the_unreachable(listener, most)
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == most // 2_000


@pytest.mark.parametrize(
    ("given", "level", "words"),
    [
        ({}, logging.INFO, "the process may have 1000 open files"),
        ({"connections_max": 10}, logging.INFO, "the process may have 1000 open files"),
        ({"connections_max": 40_000}, logging.WARNING, "1000 open files, and connections_max is set to 40000"),
    ],
)
def test_limits_that_are_lowered_are_a_warning_only_where_somebody_has_set_them(
    given: dict[str, int], level: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = load_settings(given)
    limits = limits_of(settings).connections
    lowered = connections_within(limits, 1_000, settings.model_fields_set)
    assert lowered.unauthenticated_connections_max < limits.unauthenticated_connections_max
    assert [(record.levelno, record.getMessage().endswith(words)) for record in caplog.records] == [(level, True)]


def test_a_limit_in_the_environment_is_one_that_somebody_has_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RALLYPOINT_CONNECTIONS_MAX", "40000")
    config = tmp_path / "rallypoint.toml"
    config.write_text("groups_max = 9000\n")
    assert load_settings({}, config).model_fields_set >= {"connections_max", "groups_max"}
    assert "channels_max" not in load_settings({}, config).model_fields_set


# --- a stop


class LeavingNode:
    """A node whose shards nobody takes, or which has none. `is_closed`: what it was about has ended."""

    has_successor = True

    def __init__(self, shards: int = 3) -> None:
        self.shards = shards
        self.within_ms = 0
        self.is_closed = False

    def owned_shards(self) -> int:
        return 1

    def shards_left(self) -> int:
        return self.shards

    async def drain(self, within_ms: int) -> None:
        self.within_ms = within_ms
        if self.shards:
            await asyncio.Event().wait()

    async def close(self) -> None:
        self.is_closed = True


@dataclass
class Parts:
    """What takes part in a stop. `told`: what the others heard, in its order."""

    node: LeavingNode
    is_drained: bool = True
    warning_s: float = 0
    told: list[str] = field(default_factory=list)
    store_closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def service(self) -> Service:
        return cast(Service, SimpleNamespace(drain=self._drain, parked_calls=0))

    async def _drain(self) -> None:
        if not self.is_drained:
            await asyncio.Event().wait()

    async def _close_store(self) -> None:
        assert self.node.is_closed, "it might take anew what is free"
        self.told.append("lease given up")
        self.store_closed.set()

    async def _warn(self) -> None:
        await asyncio.sleep(self.warning_s)
        self.told.append("warned")

    async def _say_goodbye(self) -> None:
        """A client that answers once the store is closed, or not at all."""
        await self.store_closed.wait()
        self.told.append("goodbye")

    async def stop(self, timeout_ms: int) -> list[str]:
        channels = SimpleNamespace(warn_of_drain=self._warn, close=self._say_goodbye)
        await stop_serving(
            cast(MemberNode, self.node),
            self.service,
            cast(Store, SimpleNamespace(close=self._close_store)),
            cast(HttpApi, SimpleNamespace(channels=channels)),
            timeout_ms,
        )
        return self.told


async def test_a_stop_gives_most_of_its_time_to_the_members_that_move_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = LeavingNode()
    assert not await hand_over_everything(cast(MemberNode, node), 60)
    assert node.within_ms == 50
    assert "3 shards were not handed over within 60 ms, three quarters of drain_timeout_ms" in caplog.text


async def test_what_could_not_be_handed_over_is_given_up_before_the_clients_have_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await Parts(LeavingNode()).stop(80) == ["warned", "lease given up", "goodbye"]
    assert "did not drain" not in caplog.text


async def test_what_did_not_end_in_time_is_given_up_too(caplog: pytest.LogCaptureFixture) -> None:
    assert await Parts(LeavingNode(shards=0), is_drained=False).stop(80) == ["warned", "lease given up", "goodbye"]
    assert "not handed over" not in caplog.text


async def test_the_end_of_a_stop_has_a_quarter_of_its_time_at_least(caplog: pytest.LogCaptureFixture) -> None:
    await Parts(LeavingNode(), is_drained=False, warning_s=0.1).stop(80)
    assert "the service did not drain within 20 ms" in caplog.text


async def test_a_stop_that_handed_everything_over_keeps_its_lease_while_clients_go() -> None:
    """So that it can tell late callers where their groups are."""
    assert await Parts(LeavingNode(shards=0)).stop(80) == ["warned"], "the goodbye was not waited for for long"
