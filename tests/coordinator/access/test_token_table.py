"""Tokens: entries as texts, names, ends, and how they are found."""

import pytest

from rallypoint.coordinator.access.tokens import (
    TokenEntry,
    TokenTable,
    entry_text,
    hash_token,
    read_entries,
    read_entry,
)

KEY = b"k" * 32
NOON_MS = 1_803_384_000_000
HASH = hash_token("rp_a")


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (HASH, TokenEntry("unnamed", HASH)),
        (f"etl {HASH}", TokenEntry("etl", HASH)),
        (f"etl {HASH} expires=2027-02-23T12:00:00Z", TokenEntry("etl", HASH, NOON_MS)),
        (f"  etl   {HASH}\texpires=2027-02-23T13:00:00+01:00", TokenEntry("etl", HASH, NOON_MS)),
        (f"{HASH} expires=2027-02-23T12:00", TokenEntry("unnamed", HASH, NOON_MS)),
    ],
)
def test_an_entry_is_read_and_written(text: str, entry: TokenEntry) -> None:
    assert read_entry(text) == entry
    assert read_entry(entry_text(entry)) == entry


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rp_secret",
        "etl",
        f"a b {HASH}",
        f"e/l {HASH}",
        f"-a {HASH}",
        f"etl {HASH} expires=soon",
        HASH.upper(),
        HASH[:-1],
    ],
)
def test_a_wrong_entry_is_not_repeated(text: str) -> None:
    problem = read_entry(text)
    assert isinstance(problem, str)
    assert "rp_secret" not in problem
    assert HASH not in problem


def test_a_file_names_the_line_of_its_first_fault() -> None:
    entries, problem = read_entries(["# notes", "", f"etl {HASH}", "rp_secret"])
    assert entries == ()
    assert problem is not None
    assert problem.startswith("line 4, is not")
    again = read_entries([HASH, f"etl {HASH}"])[1]
    assert again == "line 2, has the hash of another line with another name or end"
    assert read_entries([HASH, HASH]) == ((TokenEntry("unnamed", HASH),), None)


def test_a_token_is_found_until_it_ends() -> None:
    table = TokenTable([TokenEntry("etl", HASH, NOON_MS), TokenEntry("etl", hash_token("rp_b"))], KEY)
    found = table.find("rp_a", NOON_MS - 1)
    assert found is not None
    assert found.principals == ("token:etl",)
    assert table.find("rp_a", NOON_MS) is None
    assert table.find("rp_c", 0) is None
    assert table.find(HASH, 0) is None, "the hash is not the token"
    other = table.find("rp_b", NOON_MS)
    assert other is not None
    assert other.name == "token:etl"


def test_a_credential_is_known_by_a_table_made_again_and_says_nothing() -> None:
    before = TokenTable([TokenEntry("etl", HASH)], KEY).find("rp_a", 0)
    assert before is not None
    again = TokenTable([TokenEntry("etl", HASH, NOON_MS), TokenEntry("b", hash_token("b"))], KEY)
    assert again.has(before.credential)
    assert again.end_of(before.credential) == NOON_MS
    assert not TokenTable([], KEY).has(before.credential)
    assert not TokenTable([TokenEntry("b", HASH)], KEY).has(before.credential)
    assert HASH[7:] not in before.credential.hex()
    assert "credential" not in repr(before)


def test_the_hashes_that_are_known_are_only_reached_by_a_keyed_digest() -> None:
    """What takes longer for a hash that begins as a known one would tell it, a byte at a time."""
    table = TokenTable([TokenEntry("etl", HASH)], KEY)
    assert HASH.encode() not in table._known
    assert TokenTable([TokenEntry("etl", HASH)], b"other").find("rp_a", 0) is not None
    assert table._known.keys().isdisjoint(TokenTable([TokenEntry("etl", HASH)], b"other")._known)
