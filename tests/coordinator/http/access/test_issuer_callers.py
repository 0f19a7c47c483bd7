"""Callers whom an issuer vouches for: the real API, and an issuer that runs beside it, with keys that it turns over."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rallypoint.coordinator.access.issuer_keys import REFRESH_MS, RETRY_MS
from rallypoint.coordinator.access.principals import Caller
from rallypoint.coordinator.http.access.watched_files import READ_EVERY
from rallypoint.coordinator.http.limits.failed_attempts import AT_ONCE_MAX
from rallypoint.coordinator.http.security import caller_headers
from tests.fakes.access_world import NOW_MS, AccessWorld, bearer, open_world
from tests.fakes.api_server import ANSWER_SECONDS, Answer
from tests.fakes.certificates import Authority
from tests.fakes.channel_client import beat_body, join_body, open_channel
from tests.fakes.event_reader import read_events
from tests.fakes.issuer import LASTS_S, FakeIssuer, encoded, new_key, open_issuer, public, sign, sign_with_secret
from tests.real.parts import ROOT

NOW_S = NOW_MS // 1_000
END_MS = NOW_MS + (LASTS_S + 30) * 1_000
"""When a token of that time runs out, with what clocks may differ."""

POLICY = """
[[issuer]]
url = "{url}"
audience = "rallypoint"
name = "corp"
algorithms = ["ES256"]
groups_claim = "groups"

[[allow]]
who = ["oidc:corp/alice"]
may = ["join", "describe"]
on = ["group:*", "topic:*"]

[[allow]]
who = ["oidc-group:corp/readers"]
may = ["describe"]
on = ["group:*", "topic:*"]

[[deny]]
who = ["oidc-group:corp/interns"]
may = ["*"]
on = ["group:prod*"]

[[allow]]
who = ["token:etl"]
may = ["*"]
on = ["group:*", "topic:*", "cluster"]
"""


@pytest.fixture
async def issuer() -> AsyncIterator[FakeIssuer]:
    async with open_issuer(NOW_S) as issuer:
        yield issuer


@pytest.fixture
async def world(tmp_path: Path, issuer: FakeIssuer) -> AsyncIterator[AccessWorld]:
    async with open_world(tmp_path, POLICY.format(url=issuer.url), ("etl",)) as world:
        yield world


async def beat(world: AccessWorld, token: str, joined: dict[str, Any], group_id: str = "g") -> Answer:
    return await world.ask(token, "POST", f"/v1/groups/{group_id}/heartbeat", beat_body(joined))


async def until_fetched(world: AccessWorld, issuer: FakeIssuer, count: int) -> None:
    """Until the keys were fetched so many times."""
    async with asyncio.timeout(ANSWER_SECONDS):
        while world.files.issuer_statuses()["corp"].fetched < count:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)


# --- rights


async def test_a_subject_has_the_rights_of_its_rules(world: AccessWorld, issuer: FakeIssuer) -> None:
    joined = await world.form(issuer.token(), "g")
    assert (await beat(world, issuer.token(), joined)).status == 200
    refused = await world.ask(issuer.token("bob"), "GET", "/v1/groups/g")
    assert (refused.status, refused.json["error_name"]) == (403, "GROUP_AUTHORIZATION_FAILED")
    assert "oidc:corp/bob does not have the right" in refused.json["detail"]


async def test_a_group_of_the_claims_has_the_rights_of_its_rules(world: AccessWorld, issuer: FakeIssuer) -> None:
    await world.form("etl", "g")
    reader = issuer.token("bob", groups=["staff", "readers"])
    answer = await world.ask(reader, "GET", "/v1/groups/g")
    assert (answer.status, answer.json["authorized_operations"]) == (200, ["describe"])
    assert (await world.ask(reader, "POST", "/v1/groups/g/join", join_body(""))).status == 403


async def test_a_deny_of_a_group_wins_and_is_not_dodged_by_a_long_list(world: AccessWorld, issuer: FakeIssuer) -> None:
    for groups, status in ((["x"], 404), (["interns"], 403), ([f"g{at}" for at in range(198)] + ["interns"], 403)):
        assert (await world.ask(issuer.token(groups=groups), "GET", "/v1/groups/prod")).status == status
    too_many = issuer.token(groups=[f"g{at}" for at in range(200)] + ["interns"])
    assert (await world.ask(too_many, "GET", "/v1/groups/prod")).status == 401


async def test_the_audit_log_names_the_subject_and_no_token(world: AccessWorld, issuer: FakeIssuer) -> None:
    token = issuer.token("bob")
    await world.ask(token, "DELETE", "/v1/groups/g")
    (line,) = world.lines
    assert (line["principal"], line["operation"], line["resource"]) == ("oidc:corp/bob", "delete_group", "group:g")
    assert not any(part in json.dumps(line) for part in token.split("."))


async def test_the_policy_of_the_documents_does_what_they_say(tmp_path: Path, issuer: FakeIssuer) -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    (text,) = re.findall(r'^```toml title="issuer.toml"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    text = text.replace("https://login.example.org/realms/data", issuer.url)
    async with open_world(tmp_path, text, ()) as world:
        await world.form(issuer.token("etl"), "clicks-a")
        engineer = issuer.token("alice", groups=["data-engineers"])
        assert (await world.ask(engineer, "GET", "/v1/groups/clicks-a")).status == 200
        assert (await world.ask(engineer, "GET", "/v1/groups/orders")).status == 403
        intern = issuer.token("bob", groups=["data-engineers", "interns"])
        assert (await world.ask(intern, "GET", "/v1/groups/clicks-a")).status == 200
        assert (await world.ask(intern, "DELETE", "/v1/groups/clicks-a")).status == 403
        assert (await world.ask(issuer.token("carol"), "GET", "/v1/groups/clicks-a")).status == 403


# --- what is refused


def bad_tokens(issuer: FakeIssuer) -> dict[str, str]:
    key, header = issuer.keys[issuer.key_id], {"alg": "ES256", "kid": issuer.key_id}
    good = issuer.token()
    secret = key.as_pem(private=False)
    return {
        "an opaque one": "no-such-token",
        "not signed": f"{encoded(json.dumps(header | {'alg': 'none'}).encode())}.{good.split('.')[1]}.AA",
        "signed with the public key as a secret": sign_with_secret(secret, header, issuer.claims()),
        "of another key with this id": sign(new_key("k1"), header, issuer.claims()),
        "with a key of its own": sign(new_key("k1"), header | {"jwk": public(new_key("k1"))}, issuer.claims()),
        "for another audience": issuer.token(aud="other"),
        "of another issuer": issuer.token(iss="https://evil.example"),
        "expired": issuer.token(exp=NOW_S - 31),
        "not yet good": issuer.token(nbf=NOW_S + 31),
        "without an end": issuer.token(exp=None),
        "without a subject": issuer.token(sub=None),
        "without an audience": issuer.token(aud=None),
        "with more groups than count": issuer.token(groups=[f"g{at}" for at in range(200)]),
        "with a claim twice": sign(key, header, '{"sub":"bob",' + json.dumps(issuer.claims())[1:]),
        "with something critical": sign(key, header | {"crit": ["b64"], "b64": True}, issuer.claims()),
        "cut off": good[:-1],
    }


async def test_every_bad_token_is_refused_in_the_same_words(world: AccessWorld, issuer: FakeIssuer) -> None:
    assert (await world.ask(issuer.token(), "GET", "/v1/groups/g")).status == 404
    found = set()
    for token in bad_tokens(issuer).values():
        for path in ("/v1/groups/g", "/v1/nonsense"):
            answer = await world.ask(token, "GET", path)
            words = {key: value for key, value in answer.json.items() if key != "request_id"}
            found.add((answer.status, json.dumps(words), answer.headers["WWW-Authenticate"]))
    assert len(found) == 1, found
    assert found.pop()[0] == 401


async def test_bad_tokens_are_guesses_and_good_ones_are_never_made_to_wait(
    world: AccessWorld, issuer: FakeIssuer
) -> None:
    bad = issuer.token(aud="other")
    for _ in range(AT_ONCE_MAX):
        assert (await world.ask(bad, "GET", "/v1/groups/g")).status == 401
    late = asyncio.create_task(world.ask(bad, "GET", "/v1/groups/g"))
    assert (await world.ask(issuer.token(), "GET", "/v1/groups/g")).status == 404
    assert not late.done()
    late.cancel()


# --- keys


async def test_a_key_that_is_turned_over_is_fetched_while_callers_go_on(world: AccessWorld, issuer: FakeIssuer) -> None:
    old = issuer.token()
    joined = await world.form(old, "g")
    issuer.rotate("k2")
    world.steady_ms = RETRY_MS
    assert (await beat(world, issuer.token(), joined)).status == 200
    assert (await beat(world, old, joined)).status == 200
    assert issuer.asked.count("/jwks") == 2


async def test_a_token_of_a_key_that_is_not_here_is_to_be_shown_again(world: AccessWorld, issuer: FakeIssuer) -> None:
    issuer.is_away = True
    answer = await world.ask(issuer.token(), "GET", "/v1/groups/g")
    assert (answer.status, answer.json["error_name"]) == (503, "COORDINATOR_NOT_AVAILABLE")
    assert answer.json["retriable"]
    assert answer.headers["Retry-After"] == "1"
    assert (await world.ask("etl", "GET", "/v1/groups/g")).status == 404, "others are answered"
    assert (await world.ask("", "GET", "/readyz")).status == 200, "a restart would bring no keys"
    issuer.is_away = False
    world.steady_ms = RETRY_MS
    assert (await world.ask(issuer.token(), "GET", "/v1/groups/g")).status == 404


async def test_a_key_that_was_asked_for_too_early_counts_once_it_is_there(
    world: AccessWorld, issuer: FakeIssuer
) -> None:
    assert (await world.ask(issuer.token(), "GET", "/v1/groups/g")).status == 404
    shown = dict(issuer.keys)
    issuer.rotate("k2")
    signed, issuer.keys = dict(issuer.keys), shown
    token = sign(signed["k2"], {"alg": "ES256", "kid": "k2"}, issuer.claims())
    world.steady_ms = RETRY_MS
    for _ in range(2):
        answer = await world.ask(token, "GET", "/v1/groups/g")
        assert (answer.status, answer.json["retriable"]) == (503, True)
    issuer.keys = signed
    world.steady_ms = 2 * RETRY_MS
    assert (await world.ask(token, "GET", "/v1/groups/g")).status == 404
    assert issuer.asked.count("/jwks") == 3


async def test_a_probe_waits_for_no_issuer_whatever_it_shows(world: AccessWorld, issuer: FakeIssuer) -> None:
    assert (await world.ask(issuer.token(), "GET", "/v1/groups/g")).status == 404
    world.steady_ms = RETRY_MS
    unknown = sign(new_key("k9"), {"alg": "ES256", "kid": "k9"}, issuer.claims())
    asked = issuer.asked.count("/jwks")
    for path in ("/healthz", "/readyz"):
        assert (await world.ask(unknown, "GET", path)).status == 200
    assert issuer.asked.count("/jwks") == asked, "nothing was fetched for it"


async def test_invented_keys_cause_one_fetch_and_let_others_through(world: AccessWorld, issuer: FakeIssuer) -> None:
    good = issuer.token()
    assert (await world.ask(good, "GET", "/v1/groups/g")).status == 404
    world.steady_ms = RETRY_MS
    evil = [sign(new_key("e"), {"alg": "ES256", "kid": f"e{at}"}, issuer.claims()) for at in range(20)]
    answers = [await world.ask(token, "GET", "/v1/groups/g") for token in evil]
    assert [answer.status for answer in answers] == [503] * 20
    assert issuer.asked.count("/jwks") == 2
    assert (await world.ask(good, "GET", "/v1/groups/g")).status == 404


async def test_a_key_that_is_taken_back_ends_what_its_tokens_began(world: AccessWorld, issuer: FakeIssuer) -> None:
    async with open_channel(world.api.http, world.api.port, headers=bearer(issuer.token())) as channel:
        await channel.form("g")
        issuer.rotate("k2", keeps=False)
        world.steady_ms = REFRESH_MS
        await world.look()
        await until_fetched(world, issuer, 2)
        await world.look()
        assert await channel.close_code() == 1008


# --- the end of a token


async def test_a_channel_ends_with_its_token(world: AccessWorld, issuer: FakeIssuer) -> None:
    async with open_channel(world.api.http, world.api.port, headers=bearer(issuer.token())) as channel:
        await channel.form("g")
        world.now_ms = END_MS - 1
        await world.look()
        assert (await channel.call("coordinator", body={"group_ids": ["g"]}))[0] == 200
        world.now_ms = END_MS
        await world.look()
        assert await channel.close_code() == 1008


async def test_tokens_that_end_one_after_the_other_are_looked_at_together(
    world: AccessWorld, issuer: FakeIssuer
) -> None:
    """Of thousands of callers one or the other ends at every look, and each look costs as much as the first."""
    first, second = issuer.token(exp=NOW_S + 1), issuer.token("bob", exp=NOW_S + 1.3)
    async with (
        open_channel(world.api.http, world.api.port, headers=bearer(first)) as one,
        open_channel(world.api.http, world.api.port, headers=bearer(second)) as other,
    ):
        world.now_ms = NOW_MS + 31_000
        await world.look()
        assert await one.close_code() == 1008
        world.now_ms = NOW_MS + 31_300
        await world.look()
        assert (await other.call("coordinator", body={"group_ids": ["g"]}))[0] == 200
        world.now_ms = NOW_MS + 31_700
        await world.look()
        assert await other.close_code() == 1008


async def test_an_event_stream_ends_with_its_token(world: AccessWorld, issuer: FakeIssuer) -> None:
    async with read_events(world.api.http, world.url, headers=bearer(issuer.token())) as events:
        world.now_ms = END_MS
        await world.look()
        async with asyncio.timeout(ANSWER_SECONDS):
            with pytest.raises(aiohttp.ClientError):
                await events.until("no such event")


async def waits(world: AccessWorld) -> None:
    async with asyncio.timeout(ANSWER_SECONDS):
        while not world.service.parked_calls:  # noqa: ASYNC110 - the service tells nobody
            await asyncio.sleep(0.01)


async def test_a_waiting_call_is_answered_at_the_end_of_its_token(world: AccessWorld, issuer: FakeIssuer) -> None:
    token = issuer.token()
    joined = await world.form(token, "g")
    beats = beat_body(joined) | {"wait_ms": 10_000}
    call = asyncio.create_task(world.ask(token, "POST", "/v1/groups/g/heartbeat", beats))
    await waits(world)
    world.now_ms = END_MS
    await world.look()
    assert (await call).status == 401
    assert await world.member_ids("g") == [joined["member_id"]], "it may come back with the next token"


async def test_what_waits_on_a_channel_ends_with_it_and_is_not_refused(world: AccessWorld, issuer: FakeIssuer) -> None:
    """A refusal would end the member, which calls again on its next channel."""
    await world.form("etl", "g")
    async with open_channel(world.api.http, world.api.port, headers=bearer(issuer.token())) as channel:
        member_id = await channel.new_id("g", "one")
        await channel.send("join", "g", join_body(member_id, client_id="one"))
        await waits(world)
        world.now_ms = END_MS
        await world.look()
        assert await channel.close_code() == 1008
        assert channel.pushes == [], "no answer"
    assert member_id in await world.member_ids("g")


async def test_a_member_goes_on_with_the_next_token_over_http(world: AccessWorld, issuer: FakeIssuer) -> None:
    joined = await world.form(issuer.token(), "g")
    world.now_ms = END_MS
    await world.look()
    issuer.now_s = END_MS // 1_000
    assert (await beat(world, issuer.token(), joined)).status == 200
    world.now_ms = END_MS
    await world.look()
    assert await world.member_ids("g") == [joined["member_id"]]


async def test_a_member_goes_on_with_the_next_token_on_its_next_channel(world: AccessWorld, issuer: FakeIssuer) -> None:
    async with open_channel(world.api.http, world.api.port, headers=bearer(issuer.token())) as channel:
        joined = await channel.form("g")
        world.now_ms = END_MS
        await world.look()
        assert await channel.close_code() == 1008
    issuer.now_s = END_MS // 1_000
    async with open_channel(world.api.http, world.api.port, headers=bearer(issuer.token())) as channel:
        assert (await channel.call("heartbeat", "g", beat_body(joined)))[0] == 200
        world.now_ms = END_MS
        await world.look()
        assert await world.member_ids("g") == [joined["member_id"]]
        assert (await channel.call("heartbeat", "g", beat_body(joined)))[0] == 200


async def test_a_channel_goes_on_with_the_next_token_shown_on_it(world: AccessWorld, issuer: FakeIssuer) -> None:
    async with open_channel(world.api.http, world.api.port) as channel:
        assert (await channel.call("authenticate", token=issuer.token(exp=NOW_S + 10)))[0] in {200, 503}
    async with open_channel(world.api.http, world.api.port) as channel:
        await until_fetched(world, issuer, 1)
        assert (await channel.call("authenticate", token=issuer.token()))[0] == 200
        joined = await channel.form("g")
        issuer.now_s += LASTS_S
        world.now_ms += LASTS_S * 1_000
        assert (await channel.call("authenticate", token=issuer.token()))[0] == 200
        world.now_ms = END_MS
        await world.look()
        assert (await channel.call("heartbeat", "g", beat_body(joined)))[0] == 200


async def test_a_channel_that_has_authenticated_goes_on_when_the_next_token_cannot_be_judged(
    world: AccessWorld, issuer: FakeIssuer
) -> None:
    async with open_channel(world.api.http, world.api.port, headers=bearer(issuer.token())) as channel:
        issuer.rotate("k2")
        assert (await channel.call("authenticate", token=issuer.token()))[0] == 503
        world.steady_ms = RETRY_MS
        assert (await channel.call("authenticate", token=issuer.token()))[0] == 503, "but it is fetched now"
        await until_fetched(world, issuer, 2)
        assert (await channel.call("authenticate", token=issuer.token()))[0] == 200


async def test_a_member_without_a_next_token_can_do_nothing_while_its_session_lasts(
    world: AccessWorld, issuer: FakeIssuer
) -> None:
    token = issuer.token()
    joined = await world.form(token, "g")
    world.now_ms = END_MS
    await world.look()
    assert await world.member_ids("g") == [joined["member_id"]]
    for body in ({}, {"wait_ms": 10_000}):
        beats = beat_body(joined) | body
        assert (await world.ask(token, "POST", "/v1/groups/g/heartbeat", beats)).status == 401


@pytest.mark.parametrize(
    ("old", "new"),
    [("oidc:corp/alice", "oidc:corp/bob"), ('"rallypoint"', '"other"'), ('["ES256"]', '["RS256"]')],
)
async def test_a_member_whose_right_or_issuer_is_gone_is_removed_at_once(
    world: AccessWorld, issuer: FakeIssuer, old: str, new: str
) -> None:
    await world.form(issuer.token(), "g")
    world.policy_path.write_text(POLICY.format(url=issuer.url).replace(old, new))
    await world.look()
    assert await world.member_ids("g") == []


async def test_a_policy_that_gets_the_keys_elsewhere_lets_nobody_go(world: AccessWorld, issuer: FakeIssuer) -> None:
    joined = await world.form(issuer.token(), "g")
    text = POLICY.format(url=issuer.url)
    world.policy_path.write_text(text.replace("audience", f'jwks_url = "{issuer.url}/jwks"\naudience'))
    await world.look()
    await until_fetched(world, issuer, 1)
    assert await world.member_ids("g") == [joined["member_id"]]
    assert (await beat(world, issuer.token(), joined)).status == 200


async def test_what_a_node_asks_in_the_name_of_others_ends_when_its_key_is_gone(
    tmp_path: Path, issuer: FakeIssuer
) -> None:
    policy = 'nodes = ["oidc:corp/node"]\n' + POLICY.format(url=issuer.url)
    named = caller_headers(Caller(("oidc:corp/alice",)))
    async with open_world(tmp_path, policy, ("etl",)) as world:
        asked = await world.ask(issuer.token("node"), "GET", "/v1/groups", headers=dict(named or ()))
        assert asked.status == 200
        headers = bearer(issuer.token("node")) | dict(named or ())
        async with read_events(world.api.http, world.url, headers=headers) as events:
            issuer.rotate("k2", keeps=False)
            world.steady_ms = REFRESH_MS
            await world.look()
            await until_fetched(world, issuer, 2)
            await world.look()
            async with asyncio.timeout(ANSWER_SECONDS):
                with pytest.raises(aiohttp.ClientError):
                    await events.until("no such event")


# --- several issuers


async def test_an_issuer_cannot_sign_another_s_subjects(tmp_path: Path, issuer: FakeIssuer) -> None:
    async with open_issuer(NOW_S) as other:
        text = POLICY.format(url=issuer.url)
        text += f'[[issuer]]\nurl = "{other.url}"\naudience = "rallypoint"\nname = "lab"\n'
        async with open_world(tmp_path, text, ("etl",)) as world:
            assert (await world.ask(issuer.token(), "GET", "/v1/groups/g")).status == 404
            for subject in ("alice", "corp/alice", "../corp/alice"):
                answer = await world.ask(other.token(subject), "GET", "/v1/groups/g")
                assert answer.status == 403
                assert f"oidc:lab/{subject} does not" in answer.json["detail"]
            forged = sign(other.keys["k1"], {"alg": "ES256", "kid": "k1"}, issuer.claims())
            assert (await world.ask(forged, "GET", "/v1/groups/g")).status == 401


async def test_a_policy_whose_issuer_cannot_be_used_changes_nothing_until_it_can(
    world: AccessWorld, issuer: FakeIssuer, tmp_path: Path
) -> None:
    joined = await world.form(issuer.token(), "g")
    text = POLICY.format(url=issuer.url).replace("audience", f'ca = "{tmp_path}/late/ca.pem"\naudience')
    world.policy_path.write_text(text.replace("corp/alice", "corp/bob"))
    await world.look()
    assert world.files.refused()["policy"]
    assert (await beat(world, issuer.token(), joined)).status == 200
    Authority(tmp_path / "late")
    for _ in range(READ_EVERY):
        world.files.look()
    assert not world.files.refused()["policy"]
    assert (await beat(world, issuer.token(), joined)).status == 403
