"""Numbers of partitions and shards as runs. Pure."""

from collections.abc import Sequence


def numbers_text(numbers: Sequence[int]) -> str:
    """Ascending numbers, contiguous ones as `0-3`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
