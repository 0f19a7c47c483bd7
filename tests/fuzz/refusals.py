"""What a refusal must be, whoever met it, and the groups that there are to be refused by."""

from rallypoint.protocol.errors import ErrorCode
from tests.coordinator.http.problem_checks import check_problem
from tests.fakes.api_server import Answer
from tests.fakes.real_api import RealApi
from tests.fuzz.torn_requests import GROUP, TOPIC, join

SIMPLE_GROUP = "simple"


def form_groups(api: RealApi) -> str:
    """A topic, a Stable group of one member with an offset, and a group without members. The member's id."""
    assert api.call("PUT", f"/v1/topics/{TOPIC}", {"partitions": 3}).status == 200
    member_id = str(api.call("POST", f"/v1/groups/{GROUP}/join", join("")).json["member_id"])
    assert api.call("POST", f"/v1/groups/{GROUP}/join", join(member_id)).json["generation_id"] == 1
    of_member = {"member_id": member_id, "generation_id": 1}
    protocol = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    assert api.call("POST", f"/v1/groups/{GROUP}/sync", of_member | protocol).status == 200
    offsets = {"offsets": {TOPIC: {"0": {"offset": 5}}}}
    assert api.call("POST", f"/v1/groups/{GROUP}/offsets", of_member | offsets).status == 200
    assert api.call("POST", f"/v1/groups/{SIMPLE_GROUP}/offsets", offsets | {"generation_id": -1}).status == 200
    return member_id


def check_answers(sent: bytes, answers: list[Answer]) -> None:
    """Each is no fault, and coded where it refuses. Only a head that never ends gets none."""
    for answer in answers:
        assert answer.status < 500 or answer.status == 503, answer
        if answer.status >= 400:
            check_problem(answer)
    assert answers or b"\r\n\r\n" not in sent, "no answer to a request"


def may_change(answers: list[Answer]) -> bool:
    """Whether one of them says that something was done. Who is told to join with an id was given one."""
    return any(answer.status < 400 or kind_of(answer) == ErrorCode.MEMBER_ID_REQUIRED.name for answer in answers)


def kind_of(answer: Answer) -> str:
    """The answer in one word: its error's name, or its status."""
    return str(answer.json["error_name"]) if answer.status >= 400 else str(answer.status)
