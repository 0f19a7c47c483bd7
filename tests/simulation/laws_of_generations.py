"""Laws of generations, slots and what belongs to them: I1, I2, I5, and what members believe."""

from rallypoint.coordinator.core.effects import Event, Failure, GroupRemoved, JoinPhaseEnded
from rallypoint.member.core.states import State as MemberState
from rallypoint.member.subscription import read_assignment
from rallypoint.protocol import messages as m
from rallypoint.protocol.errors import ErrorCode
from tests.simulation.checker import Checker, Sight
from tests.simulation.client import Client
from tests.simulation.fold import FoldedGroup, OffsetKey, Share
from tests.simulation.network import Answer, ApiCall


class I1Generations(Checker):
    """The generation in the store never goes back, and no number serves two rebalances, whatever was lost in between.

    What is stored as the assignment of a generation stays, except that a static member's new id takes its old one's
    slot. Nobody hears of a generation before its number is used up in the store. A group that is gone leaves no
    offset, and begins again.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._header: dict[str, tuple[int, int]] = {}
        self._shares: dict[str, tuple[int, dict[str, Share]]] = {}
        self._rebalances: dict[str, int] = {}
        self._deaths: dict[str, int] = {}

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        header = group.header
        if group.deaths != self._deaths.get(group_id, 0):
            self._deaths[group_id] = group.deaths
            self._header.pop(group_id, None)
            self._shares.pop(group_id, None)
            # Where nobody could tell whether it was stored, its going is not told as an event.
            self._rebalances.pop(group_id, None)
        if header is None:
            # What else is left is swept, perhaps after a crash: `I10Store` sees whether it counts for anything.
            if group.offsets:
                self.fail(f"{group_id}: offsets without a header")
            return
        now = (header.generation_id, header.highest_generation_id)
        before = self._header.get(group_id, (0, 0))
        if now[0] < before[0] or now[1] < before[1] or now[0] > now[1]:
            self.fail(f"{group_id}: stored (generation, highest) went from {before} to {now}")
        self._header[group_id] = now
        shares = group.shares
        of_generation, known = self._shares.get(group_id, (-1, {}))
        if of_generation == header.generation_id and shares != known:
            self._check_take_over(group_id, known, shares)
        self._shares[group_id] = (header.generation_id, shares)

    def _check_take_over(self, group_id: str, before: dict[str, Share], after: dict[str, Share]) -> None:
        gone = {member_id: share for member_id, share in before.items() if after.get(member_id) != share}
        come = {member_id: share for member_id, share in after.items() if before.get(member_id) != share}
        left = {share.instance: share for share in gone.values()}
        right = {share.instance: share for share in come.values()}
        if None in left or None in right or left != right or len(left) != len(gone) or len(right) != len(come):
            self.fail(f"{group_id}: the stored assignment of a generation changed: {gone} became {come}")

    def node_began(self) -> None:
        for group_id in [x for x in self._rebalances if self.sight.fold.group(x).header is None]:
            del self._rebalances[group_id]

    def happened(self, event: Event) -> None:
        if isinstance(event, GroupRemoved):
            self._rebalances.pop(event.group_id, None)
        if isinstance(event, JoinPhaseEnded):
            last = self._rebalances.get(event.group_id, 0)
            if event.generation_id <= last:
                self.fail(f"{event.group_id}: a rebalance ended as generation {event.generation_id} after {last}")
            self._rebalances[event.group_id] = event.generation_id

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        if isinstance(answer, m.JoinAnswer):
            header = self.sight.fold.group(api_call.group_id).header
            if header is not None and header.highest_generation_id < answer.generation_id:
                self.fail(
                    f"{api_call.group_id}: generation {answer.generation_id} was told before it was used up: {header}"
                )


class I2SyncAnswers(Checker):
    """A sync that succeeds gets what is stored for that member in that generation, and nothing else."""

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self.given: dict[tuple[str, int], dict[str, Share]] = {}
        self.lives: dict[str, int] = {}
        """Of each member that an assignment was stored for: in which life of its group. Its id is never drawn again."""

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        for stood in (*group.amid, group.standing):
            if stood is not None:
                for member_id in stood.shares:
                    self.lives.setdefault(member_id, stood.deaths)
                self.given.setdefault((group_id, stood.generation_id), {}).update(stood.shares)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        if isinstance(answer, m.SyncAnswer):
            request = api_call.request
            share = self.given.get((api_call.group_id, request.generation_id), {}).get(request.member_id)
            if share is None or share.assignment != answer.assignment:
                self.fail(
                    f"{api_call.group_id}: {request.member_id} was given {answer.assignment} in generation"
                    f" {request.generation_id}; stored is {share}"
                )


class I5Instances(Checker):
    """One instance id is one member's: in memory, in the store, and for those who call. Who lost it is told FENCED.

    And only who lost it: an id that took the slot over is never fenced in favour of an older one.
    """

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight)
        self._fenced: dict[ApiCall, str] = {}

    def stored(self, group_id: str, group: FoldedGroup) -> None:
        instances = [record.group_instance_id for record in group.members.values() if record.group_instance_id]
        if len(instances) != len(set(instances)):
            self.fail(f"{group_id}: two members with one instance id are stored: {sorted(group.members)}")

    def on_call(self, api_call: ApiCall) -> None:
        instance = getattr(api_call.request, "group_instance_id", None)
        member_id = getattr(api_call.request, "member_id", "")
        seen = None if self.sight.node is None else self.sight.node.group(api_call.group_id)
        if instance and member_id and seen is not None and seen.is_idle:
            holder_id = seen.group.static_members.get(instance)
            if holder_id is not None and holder_id != member_id:
                self._fenced[api_call] = holder_id

    def hung_up(self, api_call: ApiCall, connection_lost: bool = False) -> None:
        self._fenced.pop(api_call, None)

    def on_answer(self, api_call: ApiCall, answer: Answer) -> None:
        holder_id = self._fenced.pop(api_call, None)
        if holder_id is None:
            return
        request = api_call.request
        if isinstance(answer, Failure) and answer.code is ErrorCode.GROUP_MAX_SIZE_REACHED:
            return  # asked for before the slot
        if not isinstance(answer, Failure) or answer.code is not ErrorCode.FENCED_INSTANCE_ID:
            self.fail(
                f"{api_call.group_id}: {request.member_id} lost its slot to {holder_id} and was answered {answer}"
            )
        if _age(holder_id) < _age(request.member_id):
            self.fail(f"{api_call.group_id}: {request.member_id} is fenced by the older id {holder_id}")


def _age(member_id: str) -> int:
    """Ids end with the number that was drawn for them."""
    return int(member_id.rsplit("-", 1)[-1]) if member_id.rsplit("-", 1)[-1].isdigit() else 0


class MembersBelieve(Checker):
    """A member that holds an assignment was given it by what is stored for its generation; an eager one that joins
    holds none. So within a generation a partition has one owner; a static member's old and new id are one.

    A cooperative member holds less while it gives up in parts, and more until it has given up what the generation takes
    from it (`I12OneAtWork`).
    """

    def __init__(self, sight: Sight, i2: I2SyncAnswers) -> None:
        super().__init__(sight)
        self._given = i2.given
        self._lives = i2.lives
        self._owners: dict[tuple[str, int, int], dict[OffsetKey, str]] = {}
        self._checked: dict[str, object] = {}

    def believed(self, client: Client) -> None:
        held = client.held
        cooperative = client.machine.cooperative
        if held is not None and not cooperative and client.state not in (MemberState.STABLE, MemberState.REVOKING):
            self.fail(f"{client.name} is {client.state.value} and believes {held}")
        if held is None or self._checked.get(client.name) is held:
            return
        self._checked[client.name] = held
        share = self._given.get((client.group_id, held.generation_id), {}).get(held.member_id)
        given = None if share is None else read_assignment(share.assignment)[0]
        if cooperative and client.machine._owned.promised is not None:
            if client.machine._owned.promised.partitions != given:
                self.fail(f"{client.name} is promised {client.machine._owned.promised}; stored is {share}")
            return
        partitions = held.partitions
        if cooperative:
            # Who is lost to the group while it gives up holds that part until its callback returns.
            partitions -= client.machine._owned.giving_up or frozenset()
        if given is None or not (partitions <= given if cooperative else partitions == given):
            self.fail(f"{client.name} believes {held}; stored is {share}")
        of_rebalance = (client.group_id, self._lives[held.member_id], held.generation_id)
        owners = self._owners.setdefault(of_rebalance, {})
        for partition in sorted(partitions):
            if owners.setdefault(partition, client.slot) != client.slot:
                self.fail(
                    f"{client.group_id} {held.generation_id}: {partition} is {owners[partition]}'s and {client.slot}'s"
                )
