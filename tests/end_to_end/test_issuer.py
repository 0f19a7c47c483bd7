"""A service as a process, an issuer beside it whose keys turn over, and members whose tokens last for seconds."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rallypoint import GroupMember, MemberOptions, NotAuthenticated
from tests.end_to_end.service_process import ServiceProcess
from tests.fakes.issuer import FakeIssuer, open_issuer

POLICY = """
[[issuer]]
url = "{url}"
audience = "rallypoint"
algorithms = ["ES256"]
clock_skew_seconds = 0

[[allow]]
who = ["oidc:alice"]
may = ["join", "describe", "topics"]
on = ["group:*", "topic:*"]
"""
LASTS_S = 4
SECONDS = 60.0


@pytest.fixture
async def issuer() -> AsyncIterator[FakeIssuer]:
    async with open_issuer(0) as issuer:
        yield issuer


@pytest.fixture
async def service(tmp_path: Path, issuer: FakeIssuer) -> AsyncIterator[ServiceProcess]:
    (tmp_path / "access.toml").write_text(POLICY.format(url=issuer.url))
    service = ServiceProcess(tmp_path, options=("--access", str(tmp_path / "access.toml"), *QUICK))
    await asyncio.to_thread(service.start)
    yield service
    assert await asyncio.to_thread(service.stop) == 0
    assert "Traceback" not in service.log
    assert "eyJ" not in service.log, "no token is logged"


QUICK = ("--group-initial-rebalance-delay-ms", "0", "--log-level", "debug")


class Tokens:
    """A function that gives the present token, as the library of an issuer does: a new one when half of it is over."""

    def __init__(self, issuer: FakeIssuer, sub: str = "alice") -> None:
        self.issuer = issuer
        self.sub = sub
        self.count = 0
        self._token = ""
        self._at_s = 0.0

    def __call__(self) -> str:
        now_s = time.time()
        if now_s - self._at_s > LASTS_S / 2:
            self._at_s = now_s
            self.count += 1
            self._token = self.issuer.token(self.sub, iat=int(now_s), exp=int(now_s) + LASTS_S)
        return self._token


async def test_a_member_outlives_its_tokens_and_the_keys_of_its_issuer(
    service: ServiceProcess, issuer: FakeIssuer
) -> None:
    tokens = Tokens(issuer)
    options = MemberOptions(coordinator=service.url, group_id="g", topics=("clicks",), token=tokens)
    async with GroupMember(options) as member, asyncio.timeout(SECONDS):
        joined = await member.wait_assigned()
        while tokens.count < 2:  # noqa: ASYNC110 - until the service has ended a channel
            await asyncio.sleep(0.05)
        issuer.rotate("k2", keeps=False)
        while issuer.asked.count("/jwks") < 2:  # noqa: ASYNC110 - until the service has heard of the new key
            await asyncio.sleep(0.05)
        await member.commit({("clicks", 0): 7})
        now = await member.wait_assigned()
        assert (now.generation_id, now.member_id) == (joined.generation_id, joined.member_id)


async def test_who_is_not_known_to_the_issuer_or_the_policy_is_refused(
    service: ServiceProcess, issuer: FakeIssuer
) -> None:
    other = FakeIssuer(0, issuer.url)
    options = MemberOptions(coordinator=service.url, group_id="g", topics=("clicks",), token=Tokens(other)())
    async with GroupMember(options) as member, asyncio.timeout(SECONDS):
        with pytest.raises(NotAuthenticated):
            await member.wait_assigned()


async def test_without_the_package_the_service_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "joserfc").mkdir()
    (tmp_path / "joserfc" / "__init__.py").write_text("raise ImportError('it is not here')\n")
    (tmp_path / "access.toml").write_text(POLICY.format(url="https://login.example.org"))
    command = (sys.executable, "-m", "rallypoint.cli.main", "serve", "--port", "0", "--storage", "memory:")
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "--access", str(tmp_path / "access.toml")],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'rallypoint[oidc]'" in done.stderr
    assert "Traceback" not in done.stderr
