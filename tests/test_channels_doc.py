"""docs/channels.md: what stands there as said is what a service says."""

import json
import re
from pathlib import Path
from typing import Any, get_args

from rallypoint.coordinator.access.tokens import hash_token
from rallypoint.coordinator.http.channel.channel import Ending
from rallypoint.coordinator.http.security import SecurityPolicy
from rallypoint.protocol.channel_messages import AUTHENTICATE, DROP, OPERATIONS_BY_OP, PUSHES, ChannelCall
from tests.fakes.channel_client import SECONDS, open_channel
from tests.fakes.set_service import open_service

TEXT = (Path(__file__).parent.parent / "docs" / "channels.md").read_text()
SAID = re.findall(r"^([→←]) (.*)$", "\n".join(re.findall(r"```json channel\n(.*?)```", TEXT, re.S)), re.M)


async def test_a_service_answers_as_it_stands_there() -> None:
    policy = SecurityPolicy(tokens=(hash_token("TOKEN"),))
    async with (
        open_service(policy=policy) as api,
        open_channel(api.http, api.port) as client,
    ):
        expected: list[Any] = []
        for direction, text in [*SAID, ("→", "")]:
            if direction == "←":
                expected.append(json.loads(text))
                continue
            found = [json.loads(await client.socket.receive_str(timeout=SECONDS)) for _ in expected]
            assert found == expected
            expected = []
            if text:
                await client.socket.send_str(text)


def test_every_call_and_every_push_is_shown() -> None:
    said = [json.loads(text) for _, text in SAID]
    ops = {str(get_args(call.model_fields["op"].annotation)[0]) for call in get_args(ChannelCall)}
    assert ops == {*OPERATIONS_BY_OP, DROP, AUTHENTICATE}
    assert {message["op"] for message in said if "op" in message} >= ops
    for op, operation in OPERATIONS_BY_OP.items():
        assert f"| `{op}` | `{operation.method} {operation.path}` |" in TEXT
    for push in PUSHES:
        fields = ", ".join(f"`{name}`" for name in push.model_fields if name != "event")
        assert f"| `{push.model_fields['event'].default}` | {fields} |" in TEXT


def test_every_close_code_has_its_row() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d{4}) \|", TEXT, re.M)}
    # 1006 is sent by nobody: it stands for a connection that is gone.
    assert codes | {1006} == {ending.value.code for ending in Ending}
