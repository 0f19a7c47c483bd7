"""Groups for the tests of commands, made by plain requests."""

from typing import Any

from tests.fakes.real_api import RealApi


def commit(api: RealApi, group_id: str, offsets: dict[str, dict[str, int]]) -> None:
    """A group of simple commits."""
    parts = {topic: {p: {"offset": offset} for p, offset in found.items()} for topic, found in offsets.items()}
    answer = api.call(
        "POST", f"/v1/groups/{group_id}/offsets", {"generation_id": -1, "member_id": "", "offsets": parts}
    )
    assert answer.status == 200, answer.body


def join(api: RealApi, group_id: str, client_id: str = "etl", topic: str = "clicks", **more: Any) -> str:
    """Ask to join: the member waits from now on. Its id."""
    body: dict[str, Any] = {
        "member_id": "", "client_id": client_id, "protocol_type": "consumer", "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 60_000, "protocols": [{"name": "range", "metadata": {"topics": [topic]}}], **more,
    }  # fmt: skip
    refused = api.call("POST", f"/v1/groups/{group_id}/join", body).json
    if refused.get("error_name") == "MEMBER_ID_REQUIRED":
        body["member_id"] = refused["member_id"]
        refused = api.call("POST", f"/v1/groups/{group_id}/join", body).json
    return str(refused["member_id"])


def stable(api: RealApi, group_id: str, topic: str = "clicks", partitions: tuple[int, ...] = (0, 1)) -> str:
    """A group of one member that owns the partitions. Its id."""
    member_id = join(api, group_id, topic=topic)
    answer = api.call(
        "POST",
        f"/v1/groups/{group_id}/sync",
        {
            "generation_id": 1, "member_id": member_id, "protocol_type": "consumer", "protocol_name": "range",
            "assignments": [{"member_id": member_id, "assignment": {"partitions": {topic: list(partitions)}}}],
        },
    )  # fmt: skip
    assert answer.status == 200, answer.body
    return member_id
