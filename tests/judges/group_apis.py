"""Kafka's group APIs, each answered by calls of the service's HTTP API.

A function for each API takes the version and the value of a request, and returns the value of its answer. What Kafka's
clients say and the service's API cannot take is not asked: how long offsets are kept (`retention_time_ms`), an epoch
of the newer consumer protocol, and whether fetched offsets may belong to an open transaction.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from rallypoint.protocol import operations
from rallypoint.protocol.errors import ErrorCode
from tests.judges.group_service import Answer, GroupService, ServiceGoneError, code_for_clients
from tests.judges.opaque_bytes import assignment_bytes, json_of_bytes, subscription_bytes

Value = dict[str, Any]
Named = TypeVar("Named")
GroupApi = Callable[[GroupService, int, Value, str | None], Awaitable[Value]]
"""The service, the version, what is asked, and the client's name."""

NO_OFFSET = -1
NAMED_MAX = 50
"""Topics, partitions or groups of one call: they stand in its URL, which may not be long."""
KEYS_OF_GROUPS = 0
"""Key type of FindCoordinator."""
FIRST_TO_NEED_AN_ID = 4
"""The first version of JoinGroup whose clients can be told to come back with the id they are given."""
FIRST_TO_SKIP = 9
"""The first version of JoinGroup that can tell a leader that nothing is to be assigned."""
FIRST_TO_NAME_THE_PROTOCOL = 5
"""The first version of SyncGroup that says type and name of the protocol, and must."""


async def join_group(service: GroupService, version: int, asked: Value, client_id: str | None) -> Value:
    body = {
        "member_id": asked["member_id"],
        "group_instance_id": asked["group_instance_id"],
        "client_id": client_id or "",
        "protocol_type": asked["protocol_type"],
        "protocols": [{"name": one["name"], "metadata": json_of_bytes(one["metadata"])} for one in asked["protocols"]],
        "session_timeout_ms": asked["session_timeout_ms"],
        "rebalance_timeout_ms": asked["rebalance_timeout_ms"] if version else asked["session_timeout_ms"],
        "reason": asked["reason"],
        # Of this request of the client: the door's own repetitions of it are no other attempt.
        "request_id": uuid4().hex,
    }
    answer = await service.call(operations.JOIN, body, group_id=asked["group_id"])
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED and version < FIRST_TO_NEED_AN_ID:
        body |= {"member_id": answer.body["member_id"], "request_id": uuid4().hex}
        answer = await service.call(operations.JOIN, body, group_id=asked["group_id"])
    if answer.error_code:
        return {
            "error_code": answer.error_code,
            "generation_id": -1,
            # The id to come back with, or the one that was fenced.
            "member_id": answer.body.get("member_id") or asked["member_id"],
            "protocol_name": "" if version < 7 else None,
        }
    joined = answer.body
    if joined.get("skip_assignment") and version < FIRST_TO_SKIP:
        # It leads, and there is nothing to assign. Before, Kafka said that its old id leads, which no one has.
        joined = {**joined, "leader": "", "members": []}
    return {
        "generation_id": joined["generation_id"],
        "protocol_type": joined["protocol_type"],
        "protocol_name": joined["protocol_name"],
        "leader": joined["leader"],
        "member_id": joined["member_id"],
        "skip_assignment": joined.get("skip_assignment", False) if version >= FIRST_TO_SKIP else False,
        "members": [
            {
                "member_id": member["member_id"],
                "group_instance_id": member.get("group_instance_id"),
                "metadata": subscription_bytes(member["metadata"], joined["protocol_type"]),
            }
            for member in joined["members"]
        ],
    }


async def sync_group(service: GroupService, version: int, asked: Value, _client_id: str | None) -> Value:
    body = {
        "generation_id": asked["generation_id"],
        "member_id": asked["member_id"],
        "group_instance_id": asked["group_instance_id"],
        "assignments": [
            {"member_id": one["member_id"], "assignment": json_of_bytes(one["assignment"])}
            for one in asked["assignments"]
        ],
    }
    named = {name: asked[name] for name in ("protocol_type", "protocol_name") if asked[name] is not None}
    if version >= FIRST_TO_NAME_THE_PROTOCOL and len(named) < 2:
        return {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    body |= named
    answer = await service.call(operations.SYNC, body, group_id=asked["group_id"])
    if answer.error_code:
        return {"error_code": answer.error_code}
    return {
        "protocol_type": answer.body["protocol_type"],
        "protocol_name": answer.body["protocol_name"],
        "assignment": assignment_bytes(answer.body["assignment"], answer.body["protocol_type"]),
    }


async def heartbeat(service: GroupService, _version: int, asked: Value, _client_id: str | None) -> Value:
    body = {name: asked[name] for name in ("generation_id", "member_id", "group_instance_id")}
    return {"error_code": (await service.call(operations.HEARTBEAT, body, group_id=asked["group_id"])).error_code}


async def leave_group(service: GroupService, version: int, asked: Value, _client_id: str | None) -> Value:
    members = asked["members"] if version >= 3 else [{"member_id": asked["member_id"]}]
    if not members:
        return {}
    answer = await service.call(operations.LEAVE, {"members": members}, group_id=asked["group_id"])
    if answer.error_code:
        return {"error_code": answer.error_code}
    left = [
        {name: one.get(name) for name in ("member_id", "group_instance_id", "error_code")}
        for one in answer.body["members"]
    ]
    return {"members": left} if version >= 3 else {"error_code": left[0]["error_code"]}


async def offset_commit(service: GroupService, _version: int, asked: Value, _client_id: str | None) -> Value:
    offsets = {
        topic["name"]: {str(one["partition_index"]): _commit_of(one) for one in topic["partitions"]}
        for topic in asked["topics"]
    }
    body = {
        "generation_id": asked["generation_id_or_member_epoch"],
        "member_id": asked["member_id"],
        "group_instance_id": asked["group_instance_id"],
        "offsets": offsets,
    }
    answer = await service.call(operations.COMMIT, body, group_id=asked["group_id"])
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": one["partition_index"],
                        "error_code": _error_of(answer, topic["name"], one["partition_index"]),
                    }
                    for one in topic["partitions"]
                ],
            }
            for topic in asked["topics"]
        ]
    }


def _commit_of(asked: Mapping[str, Any]) -> Value:
    epoch = asked["committed_leader_epoch"]
    return {
        "offset": asked["committed_offset"],
        "metadata": asked["committed_metadata"] or "",
        **({} if epoch < 0 else {"leader_epoch": epoch}),
    }


def _error_of(answer: Answer, topic: str, partition: int) -> int:
    return answer.error_code or code_for_clients(answer.body["offsets"][topic][str(partition)]["error_code"])


async def offset_fetch(service: GroupService, version: int, asked: Value, _client_id: str | None) -> Value:
    if version >= 8:
        groups = [await _fetched(service, group["group_id"], group["topics"]) for group in asked["groups"]]
        return {"groups": groups}
    fetched = await _fetched(service, asked["group_id"], asked["topics"])
    if version == 1 and fetched["error_code"]:
        # Before version 2 the answer as a whole has no code: each partition has.
        topics = [
            {
                "name": topic["name"],
                "partitions": [_none_of(one, fetched["error_code"]) for one in topic["partition_indexes"]],
            }
            for topic in asked["topics"]
        ]
        return {"topics": topics}
    return {"topics": fetched["topics"], "error_code": fetched["error_code"]}


async def _fetched(service: GroupService, group_id: str, topics: list[Value] | None) -> Value:
    """One group's committed offsets: those of the partitions asked for, or all."""
    if topics is not None and not topics:
        return {"group_id": group_id, "topics": [], "error_code": 0}
    named = topics if topics is not None and len(topics) <= NAMED_MAX else ()
    parameters = [("topic", topic["name"]) for topic in named]
    answer = await service.call(operations.FETCH, parameters=parameters, group_id=group_id)
    if answer.error_code:
        return {"group_id": group_id, "topics": [], "error_code": answer.error_code}
    offsets = answer.body["offsets"]
    if topics is None:
        wanted = {topic: [int(partition) for partition in committed] for topic, committed in offsets.items()}
    else:
        wanted = {topic["name"]: topic["partition_indexes"] for topic in topics}
    return {
        "group_id": group_id,
        "error_code": 0,
        "topics": [
            {"name": name, "partitions": [_fetched_partition(offsets, name, one) for one in partitions]}
            for name, partitions in wanted.items()
        ],
    }


def _fetched_partition(offsets: Mapping[str, Any], topic: str, partition: int) -> Value:
    committed = offsets.get(topic, {}).get(str(partition))
    if committed is None:
        return _none_of(partition, 0)
    epoch = committed.get("leader_epoch")
    return {
        "partition_index": partition,
        "committed_offset": committed["offset"],
        "committed_leader_epoch": -1 if epoch is None else epoch,
        "metadata": committed["metadata"],
        "error_code": 0,
    }


def _none_of(partition: int, error_code: int) -> Value:
    return {
        "partition_index": partition,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": error_code,
    }


async def describe_groups(service: GroupService, version: int, asked: Value, _client_id: str | None) -> Value:
    return {"groups": [await _described(service, version, group_id) for group_id in asked["groups"]]}


async def _described(service: GroupService, version: int, group_id: str) -> Value:
    answer = await service.call(operations.DESCRIBE, group_id=group_id)
    if answer.error_code:
        missing = answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        # Before version 6 a group that does not exist is dead, and no error.
        code = 0 if missing and version < 6 else answer.error_code
        return {"group_id": group_id, "error_code": code, "group_state": "Dead" if missing else ""}
    group = answer.body
    return {
        "group_id": group_id,
        "group_state": group["state"],
        "protocol_type": group["protocol_type"],
        "protocol_data": group["protocol_name"],
        "members": [
            {
                "member_id": member["member_id"],
                "group_instance_id": member["group_instance_id"] if version >= 4 else None,
                "client_id": member["client_id"],
                "client_host": f"/{member['host']}",
                "member_metadata": subscription_bytes(member["metadata"], group["protocol_type"]),
                "member_assignment": assignment_bytes(member["assignment"], group["protocol_type"]),
            }
            for member in group["members"]
        ],
    }


async def list_groups(service: GroupService, _version: int, asked: Value, _client_id: str | None) -> Value:
    states = {state.lower() for state in asked["states_filter"]}
    types = {one.lower() for one in asked["types_filter"]}
    groups: list[Value] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = await service.call(operations.LIST_GROUPS, parameters=[("cursor", cursor)] if cursor else [])
        if answer.error_code:
            return {"error_code": answer.error_code}
        groups += [_listed(one) for one in answer.body["groups"] if not states or one["state"].lower() in states]
        cursor = answer.body["next_cursor"]
    return {"groups": groups if not types or "classic" in types else []}


def _listed(group: Mapping[str, Any]) -> Value:
    return {
        "group_id": group["group_id"],
        "protocol_type": group["protocol_type"],
        "group_state": group["state"],
        "group_type": "classic",
    }


async def delete_groups(service: GroupService, _version: int, asked: Value, _client_id: str | None) -> Value:
    results = []
    for group_id in asked["groups_names"]:
        answer = await service.call(operations.DELETE_GROUP, group_id=group_id)
        results.append({"group_id": group_id, "error_code": answer.error_code})
    return {"results": results}


async def offset_delete(service: GroupService, _version: int, asked: Value, _client_id: str | None) -> Value:
    named = [(topic["name"], one["partition_index"]) for topic in asked["topics"] for one in topic["partitions"]]
    deleted: dict[str, dict[str, Any]] = {}
    for some in _in_parts(named):
        parameters = [("partition", f"{topic}:{partition}") for topic, partition in some]
        answer = await service.call(operations.DELETE_OFFSETS, parameters=parameters, group_id=asked["group_id"])
        if answer.error_code:
            return {"error_code": answer.error_code}
        for topic, results in answer.body["offsets"].items():
            deleted.setdefault(topic, {}).update(results)
    return {"topics": [_deleted(deleted, topic) for topic in asked["topics"]]}


def _in_parts(named: Sequence[Named]) -> Iterable[Sequence[Named]]:
    """For calls that name so many at most; one call where there is nothing to name."""
    return [named[place : place + NAMED_MAX] for place in range(0, len(named), NAMED_MAX)] or [named]


def _deleted(offsets: Mapping[str, Any], topic: Mapping[str, Any]) -> Value:
    results = offsets[topic["name"]]
    return {
        "name": topic["name"],
        "partitions": [
            {
                "partition_index": one["partition_index"],
                "error_code": results[str(one["partition_index"])]["error_code"],
            }
            for one in topic["partitions"]
        ],
    }


async def look_up_coordinators(service: GroupService, group_ids: Iterable[str]) -> Mapping[str, int]:
    """The code of each group's look-up: which node coordinates it is the door's own address to a Kafka client."""
    codes: dict[str, int] = {}
    for named in _in_parts(list(dict.fromkeys(group_ids))):
        try:
            answer = await service.call(operations.COORDINATOR, parameters=[("group_id", one) for one in named])
        except ServiceGoneError:
            # What a broker says of a coordinator on another one that is gone.
            codes |= dict.fromkeys(named, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            continue
        if answer.error_code:
            codes |= dict.fromkeys(named, answer.error_code)
        else:
            codes |= {one["group_id"]: one["error_code"] for one in answer.body["coordinators"]}
    return codes


GROUP_APIS: Mapping[int, GroupApi] = {
    8: offset_commit,
    9: offset_fetch,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    42: delete_groups,
    47: offset_delete,
}
"""By Kafka's keys. FindCoordinator is the door's own: its answer names an address."""
