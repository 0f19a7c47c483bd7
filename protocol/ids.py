"""Ids: how one is made and which are refused before any rule is asked."""

PATH_IDS_REFUSED = frozenset({".", ".."})
"""Clients normalise these path segments away, so an id of this name could never be addressed."""


def new_member_id(client_id: str, group_instance_id: str | None, random_part: str) -> str:
    """`<instance>-<random>` for a static member, `<client>-<random>` for any other, as Kafka names them."""
    return f"{client_id if group_instance_id is None else group_instance_id}-{random_part}"
