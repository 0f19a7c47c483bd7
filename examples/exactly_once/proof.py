"""The table counted against the topic: orders that are missing, or there twice. Pure: rows in, figures out.

Neither the sink's positions nor the group's offsets are believed: only the rows count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from examples.exactly_once.orders import Order, Place
from examples.exactly_once.sinks import Row


@dataclass(frozen=True, slots=True)
class Tally:
    """`rows` = `distinct` + `twice` + `alien`. `twice` counts each row of a record after the first. `alien`: rows of no
    record of the topic. `differing`: rows that do not say what their record says. `cents_sent` and `cents` are sums.
    """

    records: int
    rows: int
    distinct: int
    lost: int
    twice: int
    alien: int
    differing: int
    cents_sent: int
    cents: int
    rows_by_driver: Mapping[str, int]

    def problems(self) -> list[str]:
        """What must not be, one sentence each."""
        found = []
        if self.lost:
            found.append(f"{self.lost:,} orders are not in the table.")
        if self.twice:
            found.append(f"{self.twice:,} rows are of orders that the table has already.")
        if self.alien:
            found.append(f"{self.alien:,} rows belong to no order of the topic.")
        if self.differing:
            found.append(f"{self.differing:,} rows differ from their order.")
        if self.cents != self.cents_sent:
            found.append(f"The table adds up to {self.cents:,} cents, the topic to {self.cents_sent:,}.")
        return found


def tally(rows: Iterable[Row], sent: Mapping[Place, Order]) -> Tally:
    """Count the rows against what was sent."""
    times: Counter[Place] = Counter()
    by_driver: Counter[str] = Counter()
    alien = differing = cents = 0
    for row in rows:
        by_driver[row.driver] += 1
        cents += row.order.cents
        order = sent.get((row.partition, row.offset))
        if order is None:
            alien += 1
        else:
            times[row.partition, row.offset] += 1
            differing += order != row.order
    return Tally(
        records=len(sent),
        rows=by_driver.total(),
        distinct=len(times),
        lost=len(sent) - len(times),
        twice=times.total() - len(times),
        alien=alien,
        differing=differing,
        cents_sent=sum(order.cents for order in sent.values()),
        cents=cents,
        rows_by_driver=dict(sorted(by_driver.items())),
    )
