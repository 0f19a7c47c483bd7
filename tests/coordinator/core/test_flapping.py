"""Members that come and go in circles: a deploy is none, and a crash loop is one."""

from rallypoint.coordinator.core.flapping import WINDOW_MS, Circles, Seen, circles, circles_sentence
from rallypoint.coordinator.core.moves import OwnerNames
from rallypoint.coordinator.runtime.history.presence import NAMES_MAX, SEEN_MAX, GroupPresence

NOW = 1_700_000_000_000


def member(number: int, client_id: str = "c") -> OwnerNames:
    return OwnerNames(f"{client_id}-{number}", None, client_id, "h")


def test_a_member_that_expires_again_and_again_is_named() -> None:
    presence = GroupPresence()
    for number in range(4):
        presence.came(member(number), NOW + number)
        if number < 3:
            assert not list(presence.flapping(NOW + number))
            presence.expired(member(number).member_id)
            presence.went(member(number), NOW + number)
    [(name, found)] = presence.flapping(NOW + 4)
    assert (name.client_id, name.host, found) == ("c", "h", Circles(4, 3, 0))
    assert circles_sentence("c on h", found) == (
        "c on h joined 4 times in the last 10 min, and its session expired 3 times. Look for crashes, or for work"
        " between two polls that is longer than the session timeout."
    )
    assert not list(presence.flapping(NOW + WINDOW_MS + 4))


def test_a_deploy_of_many_members_of_one_name_is_none() -> None:
    presence = GroupPresence()
    for number in range(20):
        presence.was_there(member(number))
    for number in range(20):
        presence.went(member(number), NOW + number)
        presence.came(member(100 + number), NOW + number)
    assert not list(presence.flapping(NOW + 30))
    # Unlike a rolling restart, everyone at once begins from no member.
    for number in range(20):
        presence.went(member(100 + number), NOW + 40)
    for number in range(20):
        presence.came(member(200 + number), NOW + 50)
    assert not list(presence.flapping(NOW + 60))


def test_what_lies_before_the_window_does_not_count() -> None:
    seen = [Seen(NOW + at, "left" if at % 2 else "joined") for at in range(12)]
    assert circles(seen, 1, NOW + 20) == Circles(6, 0, 6)
    assert circles(seen, 2, NOW + 20) == Circles(6, 0, 6)
    assert circles(seen, 3, NOW + 20) is None
    assert circles(seen, 1, NOW + WINDOW_MS + 10) is None
    # A clock that was put back shows nothing of the future.
    assert circles(seen, 1, NOW - 1) is None


def test_what_is_kept_is_bounded() -> None:
    presence = GroupPresence()
    for number in range(2 * NAMES_MAX):
        presence.came(member(number, f"c{number}"), NOW)
        presence.went(member(number, f"c{number}"), NOW)
    assert len(presence._lately) == NAMES_MAX
    for number in range(2 * SEEN_MAX):
        presence.came(member(number, "c0"), NOW)
    assert len(presence._lately[next(name for name in presence._lately if name.client_id == "c0")].seen) == SEEN_MAX
    presence.came(member(1, "later"), NOW + WINDOW_MS + 1)
    assert len(presence._lately) == 1
