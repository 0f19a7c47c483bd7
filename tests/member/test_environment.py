"""Options from the environment: where they count, and what is refused."""

from typing import Any

import pytest

from rallypoint import ConsumerOptions, MemberOptions, options_from_environment

FULL = {
    "RALLYPOINT_COORDINATOR": "http://a:1, http://b:1",
    "RALLYPOINT_GROUP_ID": "g",
    "RALLYPOINT_CLIENT_ID": "etl",
    "RALLYPOINT_GROUP_INSTANCE_ID": "etl-0",
    "RALLYPOINT_TOKEN": "rp_x\n",
    "RALLYPOINT_RACK_ID": "zone-a",
    "RALLYPOINT_CA": "ca.pem",
    "RALLYPOINT_CERTIFICATE": "me.pem",
    "RALLYPOINT_KEY": "me.key",
    "RALLYPOINT_STORAGE": "none of a member's business",
}


def test_what_stands_there_counts() -> None:
    found = options_from_environment(ConsumerOptions, environment=FULL, topics=("clicks",), concurrency=4)
    assert found == ConsumerOptions(
        coordinator="http://a:1, http://b:1",
        group_id="g",
        topics=("clicks",),
        client_id="etl",
        group_instance_id="etl-0",
        token="rp_x",
        rack_id="zone-a",
        ca="ca.pem",
        certificate="me.pem",
        key="me.key",
        concurrency=4,
    )


def test_what_the_program_says_goes_before_it() -> None:
    said: dict[str, Any] = {"coordinator": "http://c:1", "group_id": "mine", "group_instance_id": None}
    found = options_from_environment(MemberOptions, environment=FULL, topics=("clicks",), **said)
    assert (found.coordinator, found.group_id, found.group_instance_id) == ("http://c:1", "mine", None)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "coordinator: give it, or set RALLYPOINT_COORDINATOR"),
        ({"RALLYPOINT_COORDINATOR": "http://a:1"}, "group_id: give it, or set RALLYPOINT_GROUP_ID"),
        (FULL | {"RALLYPOINT_GROUP_INSTANCE_ID": " "}, "RALLYPOINT_GROUP_INSTANCE_ID is there, but empty"),
        (FULL | {"RALLYPOINT_COORDINATOR": "a:1"}, "is not a URL"),
    ],
)
def test_what_cannot_be_used_is_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        options_from_environment(MemberOptions, environment=environment, topics=("clicks",))


def test_the_environment_of_the_process_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FULL.items():
        monkeypatch.setenv(name, value)
    assert options_from_environment(MemberOptions, topics=("clicks",)).group_instance_id == "etl-0"
