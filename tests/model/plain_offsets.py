"""What is committed in the plain group, and what operators and time do with it."""

from tests.model.plain_members import PlainMembers
from tests.model.plain_state import COMPLETING, CONSUMER, DEAD, EMPTY, STABLE

HIGHEST_OFFSET = 2**63 - 1


class PlainOffsets(PlainMembers):
    """Commit, delete, reset, expiry."""

    def commit(self, call: int, member_id: str, instance: str | None, generation: int, topic: str, partition: int,
               offset: int, metadata: str) -> None:  # fmt: skip
        self.come_back(member_id)
        of_nobody = generation < 0 and self.state in {DEAD, EMPTY}
        if not of_nobody:
            if self.state == DEAD:
                return self.answer(call, "ILLEGAL_GENERATION")
            if generation < 0 and not member_id and instance is None:
                return self.answer(call, "UNKNOWN_MEMBER_ID")
            refusal = self.validate(member_id, instance)
            if refusal is not None:
                return self.answer(call, *refusal)
            if generation != self.generation:
                return self.answer(call, "ILLEGAL_GENERATION")
            if self.state == COMPLETING:
                return self.answer(call, "REBALANCE_IN_PROGRESS")
        if self.state == DEAD:
            self.appear()
        member = self.find(member_id)
        if member is not None:
            self.hear(member)
        if self.beyond(topic, partition):
            return self.answer(call, "UNKNOWN_TOPIC_OR_PARTITION")
        if len(metadata) > self.limits.metadata_length:
            return self.answer(call, "OFFSET_METADATA_TOO_LARGE")
        self.offsets[topic, partition] = (offset, self.now)
        return self.answer(call, "NONE")

    def beyond(self, topic: str, partition: int) -> bool:
        """Of a topic that nobody registered, nothing is known to be too much."""
        return topic in self.registry and partition >= self.registry[topic]

    def committed(self, topic: str) -> dict[int, int]:
        return {p: offset for (of, p), (offset, _) in sorted(self.offsets.items()) if of == topic}

    # --- operators ---------------------------------------------------------------------------------------------------

    def refused_for_members(self) -> str | None:
        if self.state == DEAD:
            return "GROUP_ID_NOT_FOUND"
        return None if self.state == EMPTY else "NON_EMPTY_GROUP"

    def delete_group(self, call: int) -> None:
        refusal = self.refused_for_members()
        self.answer(call, refusal or "deleted")
        if refusal is None:
            self.vanish()

    def delete_offsets(self, call: int, topics: list[str], single: set[tuple[str, int]], dry: bool) -> None:
        """Members who are consumers keep what they may be reading; of others nobody knows what they read."""
        if not topics and not single:
            return self.answer(call, "INVALID_REQUEST")
        refusal = self.refused_for_members()
        if refusal == "GROUP_ID_NOT_FOUND" or (refusal and self.kind != CONSUMER):
            return self.answer(call, refusal)
        results: dict[tuple[str, int], str] = {}
        for topic, partition in {(t, p) for t in topics for p in self.committed(t)} | single:
            in_use = self.may_be_read(topic)
            results[topic, partition] = "GROUP_SUBSCRIBED_TO_TOPIC" if in_use else "NONE"
        for where, result in results.items():
            if result == "NONE" and not dry:
                self.offsets.pop(where, None)
        return self.answer(call, "offsets", results)

    def may_be_read(self, topic: str) -> bool:
        return any((topics := self.reads(x)) is None or topic in topics for x in self.members)

    def reset(self, call: int, to: str, number: int, topics: dict[str, list[int] | None] | None, dry: bool) -> None:
        """`number`: the offset, or by how much. No topics are those with a commit, no partitions all that are known."""
        refusal = self.refused_for_members()
        if refusal is not None:
            return self.answer(call, refusal)
        if topics is None:
            topics = {topic: None for topic, _ in self.offsets}
        results: dict[tuple[str, int], tuple[int | None, int | None, str]] = {}
        for topic, named in topics.items():
            known = {*range(self.registry.get(topic, 0)), *self.committed(topic)}
            for partition in known if named is None else named:
                results[topic, partition] = self.put(topic, partition, to, number)
        if not dry:
            for where, (_, after, result) in results.items():
                if result == "NONE" and after is not None:
                    self.offsets[where] = (after, self.now)
        return self.answer(call, "reset", results)

    def put(self, topic: str, partition: int, to: str, number: int) -> tuple[int | None, int | None, str]:
        """Offset before and after, and the result."""
        before = self.committed(topic).get(partition)
        end = self.ends.get(topic, {}).get(partition) if topic in self.registry else None
        if self.beyond(topic, partition):
            return before, before, "UNKNOWN_TOPIC_OR_PARTITION"
        if (to == "latest" and end is None) or (to == "shift" and before is None):
            return before, before, "OFFSET_NOT_AVAILABLE"
        wanted = {"earliest": 0, "latest": end or 0, "offset": number, "shift": (before or 0) + number}[to]
        return before, min(max(wanted, 0), HIGHEST_OFFSET if end is None else end), "NONE"

    # --- expiry ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """What is old goes, unless somebody may be reading it, or nobody can tell at this time; then an empty group."""
        for (topic, partition), (_, committed_at) in list(self.offsets.items()):
            if self.state == EMPTY and self.kind is not None:
                old_since = max(committed_at, self.since)
            elif self.kind is None or self.state == STABLE:
                old_since = committed_at
            else:
                continue
            if self.now - old_since >= self.limits.retention_ms and not self.may_be_read(topic):
                del self.offsets[topic, partition]
        if self.state == EMPTY and not self.offsets and not self.handed_out:
            self.vanish()
        else:
            self.look_at = self.now + self.limits.look_every_ms
