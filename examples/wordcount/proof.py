"""The drivers' counts against the text's own: what is missing, what was counted twice. Pure: tables in, figures out."""

from collections.abc import Mapping
from dataclasses import dataclass

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    """`words`: different ones in the text, `occurrences`: all of them. `lost` occurrences were not counted, `surplus`
    were counted though the text has no more of them. `wrong`: these words, with the count found and the true one.
    """

    words: int
    occurrences: int
    lost: int
    surplus: int
    wrong: Mapping[str, tuple[int, int]]

    def problems(self) -> list[str]:
        """What must not be, one sentence each."""
        if not self.wrong:
            return []
        found = []
        if self.lost:
            found.append(f"{self.lost:,} occurrences of words were not counted.")
        if self.surplus:
            found.append(f"{self.surplus:,} occurrences of words were counted twice.")
        shown = list(self.wrong.items())[:SHOWN_MAX]
        examples = ", ".join(f"{word!r} {count:,} in place of {true:,}" for word, (count, true) in shown)
        found.append(f"{len(self.wrong):,} words have a wrong count, such as {examples}.")
        return found


def compare(counted: Mapping[str, int], true: Mapping[str, int]) -> Comparison:
    """Word by word. `wrong` is in order of how far off a word is, the farthest first."""
    wrong = {
        word: (counted.get(word, 0), true.get(word, 0))
        for word in sorted(counted.keys() | true.keys())
        if counted.get(word, 0) != true.get(word, 0)
    }
    return Comparison(
        words=len(true),
        occurrences=sum(true.values()),
        lost=sum(max(right - found, 0) for found, right in wrong.values()),
        surplus=sum(max(found - right, 0) for found, right in wrong.values()),
        wrong=dict(sorted(wrong.items(), key=lambda one: -abs(one[1][0] - one[1][1]))),
    )
