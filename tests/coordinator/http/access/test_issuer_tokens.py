"""Signed tokens while keys come and go: who waits for a fetch, how many there are, and what counts meanwhile."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from joserfc.jwk import OctKey

from rallypoint.coordinator.access.issuer_keys import KEPT_MAX_MS, REFRESH_MS, RETRY_MS
from rallypoint.coordinator.access.issuers import Issuer
from rallypoint.coordinator.access.principals import Caller, SignedBy
from rallypoint.coordinator.access.signed_tokens import SigningKey, UncheckedToken, caller_of, read_keys
from rallypoint.coordinator.http.access.issuer_documents import FetchError
from rallypoint.coordinator.http.access.issuer_tokens import IssuerTokens
from rallypoint.coordinator.http.access.watched_files import FileProblem, check_authorities
from tests.fakes.issuer import AUDIENCE, FakeIssuer, new_key, sign

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1_000


class Documents:
    """Answers at once, or when a test opens the gate."""

    def __init__(self, fake: FakeIssuer) -> None:
        self.fake = fake
        self.gate = asyncio.Event()
        self.gate.set()
        self.fetches = 0
        self.is_closed = False

    async def fetch_keys(self, issuer: Issuer) -> dict[str, SigningKey]:
        self.fetches += 1
        await self.gate.wait()
        if self.fake.is_away:
            raise FetchError("it is away")
        return read_keys(json.dumps(self.fake.jwks()).encode())

    async def close(self) -> None:
        self.is_closed = True


class World:
    def __init__(self) -> None:
        self.fake = FakeIssuer(NOW_S)
        self.documents = Documents(self.fake)
        self.steady_ms = 0
        self.changes = 0
        self.issuer = Issuer(self.fake.url, AUDIENCE)
        self.checks: list[str] = []
        self.tokens = IssuerTokens(
            self.documents, lambda: self.steady_ms, self.changed, checked_max=3, check=self.check
        )
        self.tokens.use([self.issuer])

    def check(self, token: UncheckedToken, issuer: Issuer, key: SigningKey, now_ms: int) -> Caller | None:
        """As the service does it, and noted."""
        self.checks.append(token.text)
        return caller_of(token, issuer, key, now_ms)

    def changed(self) -> None:
        self.changes += 1

    async def tend(self) -> None:
        """And let what that began come to its end."""
        self.tokens.tend()
        await settle()

    async def shows(self, token: str, now_ms: int = NOW_MS) -> str | None:
        """As a request does: the name of the caller, "undecided", or None."""
        await self.tokens.prepare(token)
        caller = self.tokens.find(token, now_ms)
        if caller is not None:
            return caller.name
        return "undecided" if self.tokens.is_undecided(token) else None


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    world.documents.gate.set()
    await world.tokens.close()
    assert world.documents.is_closed


def unknown(world: World, key_id: str) -> str:
    """A token that names a key which the issuer does not have."""
    return sign(new_key(key_id), {"alg": "ES256", "kid": key_id}, world.fake.claims())


async def test_the_first_token_waits_for_the_keys(world: World) -> None:
    assert await world.shows(world.fake.token()) == "oidc:alice"
    assert (world.documents.fetches, world.changes) == (1, 1)


async def test_keys_are_fetched_at_the_start_and_now_and_then(world: World) -> None:
    await world.tend()
    assert await world.shows(world.fake.token()) == "oidc:alice"
    await world.tend()
    assert world.documents.fetches == 1
    world.steady_ms = REFRESH_MS
    await world.tend()
    assert world.documents.fetches == 2
    assert world.changes == 1, "the keys are the same"


async def test_a_new_key_is_fetched_when_a_token_names_it(world: World) -> None:
    old = world.fake.token()
    assert await world.shows(old) == "oidc:alice"
    world.fake.rotate("k2")
    world.steady_ms = RETRY_MS
    assert await world.shows(world.fake.token("bob")) == "oidc:bob"
    assert await world.shows(old) == "oidc:alice", "the old key counts as long as the issuer publishes it"
    assert world.documents.fetches == 2


async def test_tokens_with_invented_keys_cause_no_more_fetches_than_time_allows(world: World) -> None:
    await world.tend()
    world.steady_ms = RETRY_MS
    found = [await world.shows(unknown(world, f"evil-{at}")) for at in range(50)]
    assert world.documents.fetches == 2
    assert found == ["undecided"] * 50, "a replica of the issuer may lag behind the one that signs"
    world.steady_ms = 2 * RETRY_MS - 1
    assert await world.shows(unknown(world, "evil")) == "undecided"
    assert world.documents.fetches == 2
    assert await world.shows(world.fake.token()) == "oidc:alice"


async def test_callers_with_invented_keys_keep_no_other_waiting(world: World) -> None:
    await world.tend()
    world.steady_ms = RETRY_MS
    world.documents.gate.clear()
    waiting = [asyncio.create_task(world.shows(unknown(world, f"evil-{at}"))) for at in range(20)]
    await settle()
    assert world.documents.fetches == 2
    assert not any(task.done() for task in waiting)
    assert world.tokens.begin_fetch(world.fake.token()) is None, "its key is here"
    assert await world.shows(world.fake.token()) == "oidc:alice"
    world.documents.gate.set()
    found = await asyncio.gather(*waiting)
    assert found == ["undecided"] * 20


async def test_one_that_hangs_up_while_it_waits_ends_no_fetch_of_others(world: World) -> None:
    world.documents.gate.clear()
    one, other = (asyncio.create_task(world.shows(world.fake.token(name))) for name in ("a", "b"))
    await settle()
    one.cancel()
    await settle()
    world.documents.gate.set()
    assert await other == "oidc:b"


async def test_a_token_that_no_key_could_help_waits_for_nothing(world: World) -> None:
    header, secret = {"alg": "HS256", "kid": "evil"}, OctKey.generate_key(256)
    for token in (
        "opaque",
        "a.b.c",
        world.fake.token(iss="https://evil.example"),
        sign(secret, header, world.fake.claims()),
    ):
        assert await world.shows(token) is None
    assert world.documents.fetches == 0


async def test_an_issuer_that_is_away_at_the_start_leaves_tokens_undecided(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.fake.is_away = True
    assert await world.shows(world.fake.token()) == "undecided"
    world.steady_ms = RETRY_MS
    await world.tend()
    said = "the keys of the issuer https://issuer.test cannot be fetched: it is away. Nobody gets in by its tokens"
    assert caplog.text.count(said) == 1, "it is said once"
    (status,) = world.tokens.statuses().values()
    assert (status.age_ms, status.fetched, status.failed) == (None, 0, 2)
    world.fake.is_away = False
    world.steady_ms = 2 * RETRY_MS
    assert await world.shows(world.fake.token()) == "oidc:alice"


async def test_keys_go_on_counting_for_a_day_while_the_issuer_is_away(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    token = world.fake.token(exp=NOW_S + 10_000_000)
    assert await world.shows(token) == "oidc:alice"
    world.fake.is_away = True
    world.steady_ms = KEPT_MAX_MS - 1
    await world.tend()
    assert await world.shows(token) == "oidc:alice"
    assert world.tokens.statuses()[world.fake.url].age_ms == KEPT_MAX_MS - 1
    world.steady_ms = KEPT_MAX_MS
    await world.tend()
    assert world.changes == 2
    assert await world.shows(token) == "undecided"
    assert "are too old to count" in caplog.text
    world.fake.is_away = False
    world.steady_ms = KEPT_MAX_MS + RETRY_MS
    await world.tend()
    assert await world.shows(token) == "oidc:alice"
    assert "are here again" in caplog.text


async def test_what_was_checked_is_remembered_until_it_runs_out(world: World) -> None:
    token = world.fake.token()
    end_ms = NOW_MS + 630_000
    checks = world.checks
    assert await world.shows(token) == "oidc:alice"
    assert await world.shows(token) == "oidc:alice"
    assert len(checks) == 1
    assert await world.shows(token, end_ms - 1) == "oidc:alice"
    assert await world.shows(token, end_ms) is None
    assert await world.shows(token, end_ms) is None


async def test_so_many_are_remembered_and_the_first_makes_place(world: World) -> None:
    checks = world.checks
    tokens = [world.fake.token(f"u{at}") for at in range(4)]
    for token in (*tokens, tokens[3], tokens[0]):
        assert await world.shows(token)
    assert checks == [*tokens, tokens[0]]


async def vouched_for(world: World, token: str) -> SignedBy:
    """By whom and with which key it is signed, once its key is here."""
    await world.tokens.prepare(token)
    caller = world.tokens.find(token, NOW_MS)
    assert caller is not None
    assert caller.signed_by is not None
    return caller.signed_by


async def test_a_key_that_the_issuer_takes_back_counts_no_more(world: World) -> None:
    token = world.fake.token()
    signed_by = await vouched_for(world, token)
    assert world.tokens.vouches(signed_by)
    world.fake.rotate("k2", keeps=False)
    world.steady_ms = REFRESH_MS
    await world.tend()
    assert not world.tokens.vouches(signed_by)
    assert world.tokens.accepts(signed_by.issuer)
    assert await world.shows(token) == "undecided"
    assert world.changes == 2


async def test_an_issuer_that_is_named_no_more_or_otherwise_vouches_for_nobody(world: World) -> None:
    token = world.fake.token()
    signed_by = await vouched_for(world, token)
    world.tokens.use([replace(world.issuer, jwks_url="https://b.example", ca="")])
    assert world.tokens.vouches(signed_by)
    assert await world.shows(token) == "oidc:alice"
    world.tokens.use([replace(world.issuer, audience="other")])
    assert not world.tokens.vouches(signed_by)
    assert not world.tokens.accepts(signed_by.issuer)
    world.tokens.use([])
    assert len(world.tokens) == 0
    assert world.tokens.find(token, NOW_MS) is None
    assert not world.tokens.is_undecided(token)


async def test_the_same_issuers_again_change_nothing(world: World) -> None:
    assert await world.shows(world.fake.token()) == "oidc:alice"
    world.tokens.use([world.issuer])
    assert await world.shows(world.fake.token()) == "oidc:alice"
    assert world.documents.fetches == 1


async def test_a_file_of_authorities_that_cannot_be_used_is_a_problem(world: World, tmp_path: Path) -> None:
    issuer = replace(world.issuer, name="corp", ca=str(tmp_path / "ca.pem"))
    with pytest.raises(FileProblem, match=r"The `ca` of the issuer corp, .*ca\.pem, cannot be used: No such file"):
        check_authorities([issuer])


async def test_each_issuer_says_how_it_stands() -> None:
    world = World()
    world.tokens.use([replace(world.issuer, name="a"), Issuer("https://b.example", AUDIENCE, "b")])
    await world.tend()
    assert list(world.tokens.statuses()) == ["a", "b"]
    await world.tokens.close()
