"""Members in three languages in one group, as real processes: the examples hold what their pages promise."""

import asyncio
import json
import re
import signal
import subprocess
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from aiohttp import web

from rallypoint import Assignment, GroupMember, MemberOptions
from rallypoint.assignors.contract import GroupSpec, MemberSubscription
from rallypoint.assignors.range import RangeAssignor
from rallypoint.protocol.errors import ErrorCode
from tests.end_to_end.faulty_line import FaultyLine, running_line
from tests.end_to_end.service_process import ServiceProcess, running_service
from tests.end_to_end.test_cluster import shard_counts
from tests.end_to_end.three_nodes import make_certificates, three_nodes
from tests.fakes.fake_cluster import FakeCluster
from tests.fakes.fake_coordinator import FakeCoordinator, problem
from tests.real.languages import GO, JAVASCRIPT, run_go
from tests.real.parts import free_port, require_program
from tests.sizes import in_long

PARTITIONS = 7  # which two members cannot share evenly
GROUP = "clicks"
LOOPBACK = "http://127.0.0.1"
WAIT_SECONDS = 30.0
# Of a member: so that one that is gone is not missed by its session's end while a test waits.
SESSION_MS = 60_000

pytestmark = [pytest.mark.languages, pytest.mark.slow]


@pytest.fixture(params=["javascript", "go"])
def either_member(request: pytest.FixtureRequest) -> list[str | Path]:
    """The command of the one, and of the other."""
    command: list[str | Path] = request.getfixturevalue(f"{request.param}_member")
    return command


class ExampleMember:
    """An example as a process, and what it has said. `owned`: its partitions, None while it has no assignment."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    @property
    def owned(self) -> set[int] | None:
        if not self.said or self.said[-1]["event"] != "assigned":
            return None
        return set(self.said[-1]["partitions"].get("clicks", ()))

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.said]

    async def end(self, how: signal.Signals) -> int:
        """Send a signal, and its exit status once all that it said is read."""
        self.process.send_signal(how)
        return await self.ended()

    async def ended(self) -> int:
        status = await asyncio.wait_for(self.process.wait(), WAIT_SECONDS)
        await self._reading
        return status

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.append(json.loads(line))


@asynccontextmanager
async def example(
    command: Sequence[str | Path], url: str, folder: Path, *more: str, group: str = GROUP
) -> AsyncIterator[ExampleMember]:
    name = Path(command[-1]).name
    with (folder / f"{name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, "--coordinator", url, "--group", group, "--topics", "clicks", *more, stdout=PIPE, stderr=log
        )
    member = ExampleMember(process)
    try:
        yield member
    finally:
        if process.returncode is None:
            process.kill()
        await member.ended()


class PythonMember:
    """This project's own member, with the same face."""

    def __init__(
        self, url: str, on_revoked: Callable[[Assignment], Awaitable[None]] | None = None, **more: Any
    ) -> None:
        self.member = GroupMember(
            MemberOptions(
                coordinator=url,
                group_id=GROUP,
                topics=("clicks",),
                client_id="python",
                session_timeout_ms=SESSION_MS,
                **more,
            ),
            on_revoked=on_revoked,
        )

    @property
    def owned(self) -> set[int] | None:
        held = self.member.assignment
        return None if held is None else {partition for _, partition in held.partitions}


async def wait_until(what: str, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        await asyncio.sleep(0.05)


def owned_once(*members: ExampleMember | PythonMember) -> Callable[[], bool]:
    """Whether each partition has exactly one owner among them, and each of them has its even share."""

    def holds() -> bool:
        owned = [member.owned for member in members]
        counts = Counter(partition for each in owned if each is not None for partition in each)
        shares = {PARTITIONS // len(members), -(-PARTITIONS // len(members))}
        return (
            counts == dict.fromkeys(range(PARTITIONS), 1)
            and None not in owned
            and {len(each) for each in owned if each is not None} <= shares
        )

    return holds


def shares_by_range(*members: ExampleMember) -> list[set[int]]:
    """What this project's own assignor gives each of them."""
    ids = [member.said[-1]["member_id"] for member in members]
    spec = GroupSpec({"clicks": PARTITIONS}, {member_id: MemberSubscription(("clicks",)) for member_id in ids})
    given = RangeAssignor().assign(spec)
    return [{partition for _, partition in given[member_id]} for member_id in ids]


def describe(service: ServiceProcess) -> Any:
    status, described = service.send("GET", f"/v1/groups/{GROUP}")
    assert status == 200, described
    return described


def committed(service: ServiceProcess) -> dict[int, int]:
    """The committed offset of each partition."""
    status, answer = service.send("GET", f"/v1/groups/{GROUP}/offsets")
    assert status == 200, answer
    return offsets_in(answer)


def offsets_in(answer: Any) -> dict[int, int]:
    return {int(name): entry["offset"] for name, entry in answer["offsets"].get("clicks", {}).items()}


@contextmanager
def service_behind_a_line(tmp_path: Path, *, delay_ms: int) -> Iterator[tuple[FaultyLine, ServiceProcess]]:
    """A service with the topic, which its members reach by a line that can fail."""
    delay = ("--group-initial-rebalance-delay-ms", str(delay_ms))
    with running_line() as line, running_service(tmp_path, *delay, "--advertised-url", line.url) as service:
        line.lead_to(service.port)
        register(service)
        yield line, service


def register(service: ServiceProcess) -> None:
    assert service.send("PUT", "/v1/topics/clicks", {"partitions": PARTITIONS})[0] == 200


async def test_three_languages_share_a_group(
    tmp_path: Path, javascript_member: list[str | Path], go_member: list[str | Path]
) -> None:
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "300") as service:
        register(service)
        python = PythonMember(service.url)
        async with (
            python.member,
            example(javascript_member, service.url, tmp_path, "--session-timeout-ms", "60000") as javascript,
            example(go_member, service.url, tmp_path, "--session-timeout", "60s") as go,
        ):
            await wait_until("all share", owned_once(python, javascript, go))

            working = {*(javascript.owned or ()), *(go.owned or ())}
            await wait_until("both commit", lambda: committed(service).keys() == working)
            generation_id, spoken = describe(service)["generation_id"], (len(javascript.said), len(go.said))
            await restart(service)
            before = committed(service)
            await wait_until("both commit again", lambda: all(committed(service)[p] > before[p] for p in working))
            assert describe(service)["generation_id"] == generation_id
            assert describe(service)["state"] == "Stable"
            assert (len(javascript.said), len(go.said)) == spoken
            assert owned_once(python, javascript, go)()

            await javascript.end(signal.SIGKILL)
            # Its session timeout is a minute: it is the end of its connection that tells, two seconds of grace later.
            await wait_until("the others have taken over", owned_once(python, go), seconds=20)
            reached = committed(service)

            assert await go.end(signal.SIGTERM) == 0
            assert go.events[-2:] == ["revoked", "left"]
            last = go.said[-2]["offsets"]["clicks"]
            assert all(committed(service)[int(number)] == offset for number, offset in last.items())
            assert all(committed(service)[number] >= offset for number, offset in reached.items())
            await wait_until("the last one has all", owned_once(python))
            assert [member["client_id"] for member in describe(service)["members"]] == ["python"]


async def restart(service: ServiceProcess) -> None:
    """SIGTERM and a new process on the same port and store, while this program's member goes on."""
    assert await asyncio.to_thread(service.stop) == 0
    await asyncio.to_thread(service.start)


@pytest.mark.etcd
async def test_members_in_three_languages_follow_their_group_to_other_nodes(
    tmp_path: Path,
    javascript_member: list[str | Path],
    go_member: list[str | Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Sent on by the wrong one, told of a move, and left alone by a kill. Over TLS, with certificates of all to all.

    The examples are given none of these nodes: one that is gone, and one that names the wrong one and is gone soon.
    """
    signed = make_certificates(tmp_path / "certificates")
    files: dict[str, Any] = {
        "ca": signed.authority.ca,
        "certificate": signed.client.certificate,
        "key": signed.client.key,
    }
    words = [word for name, file in files.items() for word in (f"--{name.removesuffix('ificate')}", str(file))]
    options = ("--group-initial-rebalance-delay-ms", "300")
    with three_nodes(tmp_path, *options, shards=3, certificates=signed) as nodes:
        await wait_until("each has its share", lambda: all(shard_counts(node) == [1, 1, 1] for node in nodes))
        await wait_until("the topic is there", lambda: any(registers(node) for node in nodes))
        _, named = named_coordinator(nodes)
        wrong = next(node for node in nodes if node is not named)
        python = PythonMember(",".join(node.url for node in nodes), **files)
        async with AsyncExitStack() as stack:
            given = await stack.enter_async_context(FakeCoordinator({"clicks": PARTITIONS}))
            given.named_url = wrong.url
            urls = f"{LOOPBACK}:{free_port()},{given.url}"
            async with (
                python.member,
                example(javascript_member, urls, tmp_path, "--session-timeout-ms", "60000", *words) as javascript,
                example(go_member, urls, tmp_path, "--session-timeout", "60s", *words) as go,
            ):
                await wait_until("all share", owned_once(python, javascript, go))
                for command in (javascript_member, go_member):
                    assert told(tmp_path, command) == []
                await stack.aclose()
                shard, first = named_coordinator(nodes)
                later, other = [node for node in nodes if node is not first]
                working = {*(javascript.owned or ()), *(go.owned or ())}
                await wait_until("both commit", lambda: committed(first).keys() == working)
                generation_id, spoken = describe(first)["generation_id"], (len(javascript.said), len(go.said))

                reached = committed(first)
                move = other.send("POST", f"/v1/cluster/shards/{shard}/move", {"node_id": f"n{nodes.index(later)}"})
                assert move[0] == 200, move
                assert await coordinator_among([later]) is later
                await wait_until("both commit again", lambda: goes_on(later, reached))
                for command in (javascript_member, go_member):
                    assert told(tmp_path, command) == [f"coordinator moved from {first.url} to {later.url}"]

                reached = committed(later)
                caplog.clear()
                later.kill()
                successor = await coordinator_among([first, other])
                await wait_until("both commit again", lambda: goes_on(successor, reached))
                moved = f"coordinator moved from {later.url} to {successor.url}"
                await wait_until("this member says it", lambda: moved in caplog.text)
                assert describe(successor)["generation_id"] == generation_id
                assert describe(successor)["state"] == "Stable"
                assert (len(javascript.said), len(go.said)) == spoken
                assert owned_once(python, javascript, go)()
                assert [record.levelname for record in caplog.records if moved in record.getMessage()] == ["WARNING"]
                for command in (javascript_member, go_member):
                    _, lost, went = told(tmp_path, command)
                    assert lost.startswith("connecting again: ")
                    assert went == moved


def told(folder: Path, command: Sequence[str | Path]) -> list[str]:
    """What the example has said of coordinators. Before each line of the one in Go stands the time."""
    lines = (folder / f"{Path(command[-1]).name}.log").read_text().splitlines()
    said = [re.sub(r"^[0-9/]+ [0-9:]+ ", "", line) for line in lines]
    return [line for line in said if line.startswith(("coordinator ", "connecting "))]


def named_coordinator(nodes: Sequence[ServiceProcess]) -> tuple[int, ServiceProcess]:
    """The shard of the group, and the node that coordinates it."""
    status, answer = nodes[0].send("GET", f"/v1/coordinator?group_id={GROUP}")
    assert status == 200, answer
    (named,) = answer["coordinators"]
    (node,) = [node for node in nodes if node.url == named["url"]]
    return named["shard"], node


@pytest.mark.parametrize("language", ["javascript", "go"])
async def test_an_example_follows_nodes_but_not_in_circles_and_not_in_haste(
    tmp_path: Path, language: str, request: pytest.FixtureRequest
) -> None:
    """It is given the first node alone, and nothing of this moves a partition."""
    command = request.getfixturevalue(f"{language}_member")
    session = {"javascript": ("--session-timeout-ms", "60000"), "go": ("--session-timeout", "60s")}[language]
    async with FakeCluster(3, heartbeat_interval_ms=500) as cluster:
        first, second, _ = cluster.nodes
        one, two, gone = cluster.urls
        await cluster.kill(2)
        async with example(command, one, tmp_path, *session) as member:
            await wait_until("it has all", lambda: member.events == ["assigned"])

            cluster.owner = 2
            await first.channels.push({"event": "unloaded", "group_id": GROUP, "url": gone})
            await wait_until("it looks for another", lambda: len(first.bodies("coordinator")) > 4)
            asked = len(first.bodies("coordinator"))
            await asyncio.sleep(2)
            assert len(first.bodies("coordinator")) - asked < 8
            cluster.owner = 1
            await wait_until("it has found it", lambda: len(told(tmp_path, command)) == 2)

            def opened() -> int:
                return first.channels.opened_count + second.channels.opened_count

            before = opened()
            first.owner_url, second.owner_url = (lambda: two), (lambda: one)
            await wait_until("both have sent it on", lambda: opened() > before + 4)
            before = opened()
            await asyncio.sleep(2)
            assert opened() - before < 8
            first.owner_url = second.owner_url = lambda: one
            await wait_until("they agree", lambda: len(told(tmp_path, command)) == 4)

            second.owner_url = lambda: two
            await cluster.kill(0)
            await wait_until("the second node is remembered", lambda: len(told(tmp_path, command)) == 6)

            assert member.events == ["assigned"]
            assert cluster.group.generation_id == member.said[0]["generation_id"]
            lines = told(tmp_path, command)
            assert all(line.startswith("connecting again: ") for line in lines[::2])
            assert gone.removeprefix("http://") in lines[0]
            assert "NOT_COORDINATOR" in lines[2]
            moves = ((one, two), (two, one), (one, two))
            assert lines[1::2] == [f"coordinator moved from {place} to {other}" for place, other in moves]


def registers(node: ServiceProcess) -> bool:
    """Whether this node, which has to be the one that keeps the topics, has taken the topic."""
    return node.send("PUT", "/v1/topics/clicks", {"partitions": PARTITIONS})[0] == 200


async def coordinator_among(nodes: Sequence[ServiceProcess]) -> ServiceProcess:
    """The node that describes the group."""
    found: list[ServiceProcess] = []

    def is_found() -> bool:
        found.extend(node for node in nodes if node.send("GET", f"/v1/groups/{GROUP}")[0] == 200)
        return bool(found)

    await wait_until("one of them coordinates the group", is_found)
    return found[0]


def goes_on(node: ServiceProcess, reached: dict[int, int]) -> bool:
    """Whether more is committed of each. A node that is taking over, or whose etcd is slow, says to ask again."""
    status, answer = node.send("GET", f"/v1/groups/{GROUP}/offsets")
    if status == 503:
        return False
    assert status == 200, answer
    now = offsets_in(answer)
    return all(now[partition] > offset for partition, offset in reached.items())


async def test_an_example_takes_what_a_proxy_says_for_no_answer(
    tmp_path: Path, either_member: list[str | Path]
) -> None:
    """Whatever stands between a member and the service has its own words while the service is away."""
    async with FakeCoordinator({"clicks": PARTITIONS}) as service:
        service.plant("coordinator", web.json_response({"message": "no healthy upstream"}, status=502))
        service.plant("coordinator", web.json_response([]))
        service.plant("list_topics", web.json_response(None, status=502))
        service.plant("list_topics", web.json_response({}))
        async with example(either_member, service.url, tmp_path) as member:
            await wait_until("it has all", lambda: member.events == ["assigned"])
            assert await member.end(signal.SIGTERM) == 0
        assert all(lost.startswith("connecting again: ") for lost in told(tmp_path, either_member)[::2])


async def stopped_while_loading(
    service: FakeCoordinator, command: Sequence[str | Path], folder: Path, refusals: int
) -> ExampleMember:
    """An example that is asked to end while so many of its commits are refused, because a node loads its group. It has
    ended in good order.
    """
    async with example(command, service.url, folder) as member:
        await wait_until("it has all", lambda: member.events == ["assigned"])
        service.plant("commit", *[problem(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) for _ in range(refusals)])
        await service.asked("commit")
        assert await member.end(signal.SIGTERM) == 0
    assert member.events == ["assigned", "revoked", "left"]
    return member


async def test_an_example_that_is_stopped_while_a_node_loads_its_group_commits_in_order_and_leaves(
    tmp_path: Path, either_member: list[str | Path]
) -> None:
    async with FakeCoordinator({"clicks": PARTITIONS}) as service:
        member = await stopped_while_loading(service, either_member, tmp_path, refusals=4)
        reached = [body.offsets["clicks"][0].offset for body in service.bodies("commit")]
        assert reached == sorted(reached)
        assert service.group.offsets["clicks", 0].offset == member.said[-2]["offsets"]["clicks"]["0"]
        assert len(service.bodies("leave")) == 1


async def test_an_example_that_is_stopped_ends_even_if_its_group_is_never_loaded(
    tmp_path: Path, either_member: list[str | Path]
) -> None:
    async with FakeCoordinator({"clicks": PARTITIONS}) as service:
        await stopped_while_loading(service, either_member, tmp_path, refusals=500)
        assert service.group.offsets == {}


@pytest.mark.parametrize(
    ("words", "said"), [([], "--group and --topics are needed"), (["--bogus"], "Unknown option '--bogus'")]
)
def test_the_member_in_javascript_answers_wrong_words_with_a_line(
    javascript_member: list[str | Path], words: list[str], said: str
) -> None:
    ended = subprocess.run([*javascript_member, *words], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"{said}; usage: node consume.mjs ")
    assert ended.stderr.count("\n") == 1


async def test_an_example_leads_goes_on_from_what_is_committed_and_leaves(
    tmp_path: Path, either_member: list[str | Path]
) -> None:
    # Heartbeats come too seldom to tell of a rebalance: it is the push that does. And it is the leave that tells of an
    # end, not the grace after it.
    times = ("--heartbeat-interval-ms", "40000", "--disconnect-grace-ms", "60000")
    options = ("--group-initial-rebalance-delay-ms", "300", *times)
    with running_service(tmp_path, *options) as service:
        register(service)
        simple = {"generation_id": -1, "offsets": {"clicks": {"2": {"offset": 1_000}}}}
        assert service.send("POST", f"/v1/groups/{GROUP}/offsets", simple)[0] == 200
        async with example(either_member, service.url, tmp_path) as first:
            await wait_until("the first has all", owned_once(first))
            assert describe(service)["leader"] == first.said[0]["member_id"]
            assert first.said[0]["offsets"]["clicks"] == {**dict.fromkeys("013456", 0), "2": 1_000}
            await wait_until("it commits", lambda: committed(service)[2] > 1_000)
            await asyncio.sleep(0.4)  # it commits once a second: now some records are done that are not committed
            async with example(either_member, service.url, tmp_path) as second:
                await wait_until("two share", owned_once(first, second))
                # What the first gave up it had committed, and who got it begins there.
                revoked = next(line for line in first.said if line["event"] == "revoked")
                begun = {**first.said[-1]["offsets"]["clicks"], **second.said[-1]["offsets"]["clicks"]}
                assert begun == revoked["offsets"]["clicks"]
                assert begun["2"] > 1_000
                assert [first.owned, second.owned] == shares_by_range(first, second)
                assert await second.end(signal.SIGINT) == 0
            await wait_until("the first has all again", owned_once(first))
            assert await first.end(signal.SIGTERM) == 0
        assert describe(service)["state"] == "Empty"


@pytest.mark.parametrize("fault", [in_long("reset"), "lose"])
async def test_a_line_that_breaks_or_falls_silent_moves_nothing(
    tmp_path: Path, fault: str, javascript_member: list[str | Path], go_member: list[str | Path]
) -> None:
    """Broken, they are back within the grace. Silent, a call without an answer tells, well within the session."""
    with service_behind_a_line(tmp_path, delay_ms=300) as (line, service):
        async with (
            example(javascript_member, line.url, tmp_path) as javascript,
            example(go_member, line.url, tmp_path) as go,
        ):
            await wait_until("both share", owned_once(javascript, go))
            await wait_until("both commit", lambda: len(committed(service)) == PARTITIONS)
            generation_id, spoken = describe(service)["generation_id"], (len(javascript.said), len(go.said))
            assert getattr(line, fault)() >= 2
            await asyncio.sleep(0.5)  # until what had passed the line before is done
            before = committed(service)
            await wait_until("both commit again", lambda: all(committed(service)[p] > before[p] for p in before))
            line.reset_lost()
            await asyncio.sleep(3)  # longer than the grace
            assert (len(javascript.said), len(go.said)) == spoken
            assert describe(service)["generation_id"] == generation_id


async def test_an_example_that_is_not_let_in_says_so_and_ends(tmp_path: Path, either_member: list[str | Path]) -> None:
    tokens = tmp_path / "none"
    tokens.mkdir()
    with running_service(tmp_path, "--group-max-size", "1", "--group-initial-rebalance-delay-ms", "0") as service:
        register(service)
        async with example(either_member, service.url, tmp_path) as member:
            await wait_until("it has all", owned_once(member))
            async with example(either_member, service.url, tokens) as refused:
                assert await refused.ended() != 0
            assert refused.said == []
            assert "GROUP_MAX_SIZE_REACHED" in next(tokens.glob("*.log")).read_text()
            assert member.owned == set(range(PARTITIONS))


@pytest.mark.parametrize("language", ["javascript", in_long("go")])
async def test_an_example_whose_join_waits_for_longer_than_its_session_keeps_what_it_is_given(
    tmp_path: Path, language: str, request: pytest.FixtureRequest
) -> None:
    """Another member takes its time to give up. A waiting join keeps the session, which goes on from its answer."""
    command = request.getfixturevalue(f"{language}_member")
    session = {"javascript": ("--session-timeout-ms", "3000"), "go": ("--session-timeout", "3s")}[language]
    options = ("--group-initial-rebalance-delay-ms", "0", "--group-min-session-timeout-ms", "3000")
    slowly = iter((4, 0))  # at the rebalance, and when it leaves

    async def give_up(held: Assignment) -> None:
        await asyncio.sleep(next(slowly))

    with running_service(tmp_path, *options) as service:
        register(service)
        slow = PythonMember(service.url, on_revoked=give_up)
        async with slow.member:
            await wait_until("it has all", owned_once(slow))
            async with example(command, service.url, tmp_path, *session) as waiting:
                await wait_until("both share", owned_once(slow, waiting))
                await asyncio.sleep(4)  # a session, and a little
                assert waiting.events == ["assigned"]
                assert owned_once(slow, waiting)()


@pytest.mark.parametrize(
    ("language", "slow"),
    [("javascript", "sync"), in_long("javascript", "fetch"), in_long("go", "sync"), ("go", "fetch")],
)
async def test_an_example_asks_again_for_partitions_that_were_longer_on_their_way_than_its_session(
    tmp_path: Path, language: str, slow: str, request: pytest.FixtureRequest
) -> None:
    """Others may have them by then. Nor is it told first that it lost what it never had."""
    command = request.getfixturevalue(f"{language}_member")
    session = {"javascript": ("--session-timeout-ms", "3000"), "go": ("--session-timeout", "3s")}[language]

    async def come_late(_: web.Request) -> None:
        await asyncio.sleep(4)

    async with FakeCoordinator({"clicks": PARTITIONS}) as node:
        node.plant(slow, come_late)
        async with example(command, node.url, tmp_path, *session) as member:
            await wait_until("it has all", owned_once(member))
            assert (member.events, len(node.bodies("sync"))) == (["assigned"], 2)
            assert {body.max_wait_ms for body in node.bodies("sync")} == {750}


async def test_the_javascript_example_counts_its_session_by_a_clock_that_nobody_sets(
    tmp_path: Path, javascript_member: list[str | Path]
) -> None:
    """Somebody sets the clock of its machine an hour ahead, again and again."""
    ahead = tmp_path / "ahead.mjs"
    ahead.write_text("const now = Date.now;\nlet aheadMs = 0;\nDate.now = () => now() + (aheadMs += 3_600_000);\n")
    node, *program = javascript_member
    command = [node, "--import", ahead.as_uri(), *program]
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "0") as service:
        register(service)
        async with example(command, service.url, tmp_path, "--session-timeout-ms", "6000") as member:
            await wait_until("it has all", owned_once(member))
            beaten = heartbeats(service)
            await wait_until("it says three times that it lives", lambda: heartbeats(service) >= beaten + 3)
            assert member.events == ["assigned"]


def heartbeats(service: ServiceProcess) -> float:
    """Those that the service has answered on channels."""
    return sum(
        count
        for name, count in service.metrics().items()
        if name.startswith("rallypoint_channel_calls_total{") and 'operation="heartbeat"' in name
    )


async def test_an_example_whose_heartbeat_was_answered_late_sends_the_next_at_once(
    tmp_path: Path, javascript_member: list[str | Path], go_member: list[str | Path]
) -> None:
    """The line is down twice, for more than half a session each: what was answered in between has to be new."""
    with service_behind_a_line(tmp_path, delay_ms=0) as (line, _):
        async with (
            example(javascript_member, line.url, tmp_path, "--session-timeout-ms", "12000", group="one") as javascript,
            example(go_member, line.url, tmp_path, "--session-timeout", "12s", group="two") as go,
        ):
            await wait_until("each has all of its group", lambda: all(owned_once(each)() for each in (javascript, go)))
            for down_seconds, up_seconds in ((7.5, 3), (6.5, 3)):
                line.hold()
                await asyncio.sleep(down_seconds)
                line.let_go()
                await asyncio.sleep(up_seconds)
            assert [javascript.events, go.events] == [["assigned"], ["assigned"]]


async def test_an_example_lets_go_when_nobody_has_heard_of_it_for_its_session(
    tmp_path: Path, javascript_member: list[str | Path], go_member: list[str | Path]
) -> None:
    """The service is gone for longer than a session: others may have the partitions, if there is another node."""
    with running_service(tmp_path, "--group-initial-rebalance-delay-ms", "0") as service:
        register(service)
        async with (
            example(
                javascript_member, service.url, tmp_path, "--session-timeout-ms", "6000", group="one"
            ) as javascript,
            example(go_member, service.url, tmp_path, "--session-timeout", "6s", group="two") as go,
        ):
            await wait_until("each has all of its group", lambda: all(owned_once(each)() for each in (javascript, go)))
            service.kill()
            await wait_until("both have let go", lambda: javascript.events[-1] == go.events[-1] == "lost")
            service.start()
            await wait_until("both are back", lambda: all(owned_once(each)() for each in (javascript, go)))


def test_the_go_example_is_formatted_and_vetted() -> None:
    go = require_program("go", "sudo apt-get install golang-go")
    formatter = require_program("gofmt", "sudo apt-get install golang-go")
    unformatted = subprocess.run([formatter, "-l", "."], cwd=GO, capture_output=True, text=True, check=True)
    assert unformatted.stdout == ""
    run_go(go, "vet", "./...")


def test_the_examples_name_no_registry_and_pin_what_they_use() -> None:
    manifest = json.loads((JAVASCRIPT / "package.json").read_text())
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in manifest["dependencies"].values())
    files = [path for folder in (JAVASCRIPT, GO) for path in folder.iterdir() if path.is_file()]
    assert {"go.mod", "go.sum", "package.json", "member.mjs", "member.go"} <= {path.name for path in files}
    assert not [path.name for path in files if "lock" in path.name or "://" in path.read_text().replace(LOOPBACK, "")]
