"""The real service behind the real API, with a policy file and a token file that a test writes, and their watch.

The service's time stands still, so only requests change anything, and what waits goes on waiting. The wall clock, by
which tokens run out, is `now_ms`.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rallypoint.coordinator.access.tokens import TokenEntry, entry_text, hash_token
from rallypoint.coordinator.core.commands import DescribeRequest, Rules
from rallypoint.coordinator.http.access.audit import Audit
from rallypoint.coordinator.http.access.control import AccessControl
from rallypoint.coordinator.http.access.issuer_documents import IssuerDocuments
from rallypoint.coordinator.http.access.issuer_tokens import IssuerTokens
from rallypoint.coordinator.http.access.watch import AccessFiles, AccessWatch
from rallypoint.coordinator.http.tls.certificates import Certificates
from rallypoint.coordinator.main import Observers
from rallypoint.coordinator.runtime.event_loop.clock import SystemClock
from rallypoint.coordinator.runtime.events.feed import EventFeed
from rallypoint.coordinator.runtime.service import Service
from rallypoint.coordinator.storage.memory import MemoryContents, MemoryStore
from rallypoint.protocol.admin_messages import DescribeAnswer
from tests.fakes.api_server import Answer, ApiClient, open_api
from tests.fakes.channel_client import join_body, sync_body
from tests.fakes.faulty_store import FaultyStore
from tests.fakes.real_api import still_service

RULES = Rules(group_initial_rebalance_delay_ms=0, group_join_linger_ms=0, parked_call_max_wait_ms=55_000)
NOW_MS = 1_800_000_000_000


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass
class AccessWorld:
    """A token is the name that it has: `etl` is `token:etl`. lines: of the audit log."""

    folder: Path
    now_ms: int = NOW_MS
    steady_ms: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)

    api: ApiClient = field(init=False)
    store: FaultyStore = field(init=False)
    service: Service = field(init=False)
    control: AccessControl = field(init=False)
    files: AccessFiles = field(init=False)
    watch: AccessWatch = field(init=False)

    @property
    def policy_path(self) -> Path:
        return self.folder / "access.toml"

    @property
    def token_path(self) -> Path:
        return self.folder / "tokens"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.api.port}"

    def write_tokens(self, *names: str) -> None:
        entries = [TokenEntry(name, hash_token(name), self.ends.get(name)) for name in names]
        self.token_path.write_text("".join(f"{entry_text(entry)}\n" for entry in entries))

    def open_issuers(self) -> IssuerTokens:
        """Whose fetches are counted by `steady_ms`."""
        return IssuerTokens(IssuerDocuments(), lambda: self.steady_ms, self.control.look_again)

    async def look(self) -> None:
        """As if the time of two looks had passed: what was written counts."""
        await self.watch.look()
        await self.watch.look()

    async def ask(
        self, who: str, method: str, target: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """A request with the token; "" sends none."""
        return await self.api.request(method, target, body, {**(bearer(who) if who else {}), **(headers or {})})

    async def form(self, who: str, group_id: str, topic: str = "clicks") -> dict[str, Any]:
        """Make a group of one member, which subscribes to the topic; the answer to its join."""
        target = f"/v1/groups/{group_id}"
        said = {"client_id": who[:32], "protocols": [{"name": "range", "metadata": {"topics": [topic]}}]}
        refused = await self.ask(who, "POST", f"{target}/join", join_body("", **said))
        assert refused.status == 409, refused.body
        joined = await self.ask(who, "POST", f"{target}/join", join_body(refused.json["member_id"], **said))
        assert joined.status == 200, joined.body
        synced = await self.ask(who, "POST", f"{target}/sync", sync_body(joined.json))
        assert synced.status == 200, synced.body
        return dict(joined.json)

    async def member_ids(self, group_id: str) -> list[str]:
        """Who is in the group, as the service has it."""
        answer = await self.service.call(group_id, DescribeRequest(), host="")
        assert isinstance(answer, DescribeAnswer), answer
        return sorted(member.member_id for member in answer.members)


@asynccontextmanager
async def open_world(
    folder: Path,
    policy: str | None,
    tokens: tuple[str, ...],
    *,
    ends: Mapping[str, int] | None = None,
    certificates: Certificates | None = None,
) -> AsyncIterator[AccessWorld]:
    """Serve until the block ends. The watch looks only when it is told to. `policy`: None for no policy file."""
    world = AccessWorld(folder, ends=dict(ends or {}))
    if policy is not None:
        world.policy_path.write_text(policy)
    world.write_tokens(*tokens)
    world.control = AccessControl(key=b"k" * 32, takes_certificates=certificates is not None)
    paths = world.token_path if tokens else None, world.policy_path if policy is not None else None
    world.files = AccessFiles(world.control, (), *paths, world.open_issuers)
    world.files.load()
    world.store = store = FaultyStore(MemoryStore(MemoryContents()))
    feed = EventFeed("life", 100, lambda: NOW_MS)
    world.service = service = still_service(store, RULES, Observers((feed,)))
    await service.start()
    audit = Audit(lambda: world.now_ms, lambda line: world.lines.append(json.loads(line)))
    serving = open_api(
        service,
        clock=SystemClock(),
        feed=feed,
        access=world.control,
        audit=audit,
        shown_ms=lambda: world.now_ms,
        certificates=certificates,
    )
    async with serving as world.api:
        http_api = world.api.http_api
        world.watch = AccessWatch(
            world.files,
            world.control,
            http_api,
            http_api.members,
            partial(service.call, host=""),
            audit,
            lambda: world.now_ms,
            members_age_ms=1_800_000,
        )
        yield world
    await world.files.close()
    await service.drain()
    await store.close()
