"""What is asked again and again about a group: its row in the list, which any node has."""

from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import CallFailed
from rallypoint.cli.output.text import shown


def row_of(client: Client, group_id: str) -> Json:
    """The group as the list has it. Raises CallFailed if there is none, or if it cannot be listed now."""
    page = client.call("list_groups", query={"prefix": group_id, "limit": 1})
    for row in page["groups"]:
        if row["group_id"] == group_id:
            found: Json = row
            return found
    client.call("describe", group_id=group_id)  # which says why it is not in the list
    raise CallFailed(f"Group {shown(group_id)!r} is not in the list; ask again.")
