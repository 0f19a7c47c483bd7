"""What the process makes of its settings before it serves."""

import socket
import sys

import pytest

from coordinator.core.commands import Rules
from coordinator.main import StartError, advertised_url, bind, give_up_the_unreachable, policy_of, rules_of
from coordinator.settings import Settings


def test_every_rule_comes_from_its_setting() -> None:
    given = {name: number for number, name in enumerate(Rules.__slots__, start=1000)}
    settings = Settings.model_validate(given | {"group_max_session_timeout_ms": 5000})
    assert {name: getattr(rules_of(settings), name) for name in given} == given | {"group_max_session_timeout_ms": 5000}


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
    assert advertised_url(host, 8000) == url


def test_own_names_and_origins_are_let_in() -> None:
    settings = Settings(
        host="10.0.0.5",
        insecure=True,
        advertised_url="https://Rally.example.org",
        allowed_hosts=("other.example.org",),
        allowed_origins=("https://console.example.org",),
    )
    policy = policy_of(settings, settings.advertised_url or "", ("sha256:x",))
    assert policy.hosts == {"10.0.0.5", "rally.example.org", "other.example.org"}
    assert policy.origins == {"https://rally.example.org", "https://console.example.org"}
    assert policy.token_hashes == ("sha256:x",)


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
