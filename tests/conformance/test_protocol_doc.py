"""`docs/protocol.md` says what the code has: the diagram is the table of legal moves, the names and files are there.

REWRITE=1 draws the diagram again.
"""

import os
import re
from pathlib import Path

from rallypoint.coordinator.core.commands import TimerKind, Trigger
from rallypoint.coordinator.core.group import LEGAL_MOVES, State

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "protocol.md"
REWRITE = os.environ.get("REWRITE", "") not in {"", "0"}
FENCE = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)

EMPTY, PREPARING, COMPLETING = State.EMPTY, State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE
STABLE, DEAD = State.STABLE, State.DEAD

WORDS = {
    (DEAD, EMPTY): "first join, simple commit, or loaded without members",
    (DEAD, STABLE): "loaded with members",
    (EMPTY, PREPARING): "a member comes",
    (PREPARING, COMPLETING): "all have joined, or the time is over",
    (PREPARING, EMPTY): "nobody has joined, or nobody is left",
    (COMPLETING, STABLE): "the leader's assignment is stored",
    (COMPLETING, PREPARING): "a member comes, goes or changes",
    (STABLE, PREPARING): "a member comes, goes or changes, the leader joins, or a topic changes",
    (EMPTY, DEAD): "deleted, or nothing of it is left, or its shard is lost",
    (PREPARING, DEAD): "its shard is lost",
    (COMPLETING, DEAD): "its shard is lost",
    (STABLE, DEAD): "its shard is lost",
}
"""What causes each move; the moves themselves are the core's."""


def drawn() -> str:
    """The diagram, in the order of the states."""
    moves = [
        f"    {old} --> {new}: {WORDS[old, new]}\n"
        for old in State
        for new in sorted(LEGAL_MOVES[old], key=list(State).index)
    ]
    return "".join(["stateDiagram-v2\n", "    [*] --> Dead\n", *moves])


def test_every_legal_move_has_its_words_and_no_other() -> None:
    assert WORDS.keys() == {(old, new) for old, to in LEGAL_MOVES.items() for new in to}


def test_the_diagram_is_the_one_drawn_from_the_table() -> None:
    text = DOC.read_text()
    if REWRITE:
        text = FENCE.sub(lambda _: f"```mermaid\n{drawn()}```", text)
        DOC.write_text(text)
    assert FENCE.findall(text) == [drawn()]


def test_every_state_trigger_and_timer_is_named() -> None:
    text = DOC.read_text()
    for state in State:
        assert re.search(rf"^\| {state} \|", text, re.MULTILINE), state
    for trigger in Trigger:
        assert f"`{trigger}`" in text
    timers = {
        "session": "session",
        "pending": "pending id",
        "join": "join phase",
        "sync": "sync phase",
        "call": "held call",
        "retention": "retention",
        "hold": "hold",
        "grace": "grace",
        "linger": "linger",
    }
    assert timers.keys() == {kind.value for kind in TimerKind}
    for name in timers.values():
        assert re.search(rf"^\| {name} \|", text, re.MULTILINE), name
