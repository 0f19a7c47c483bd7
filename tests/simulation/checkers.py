"""What must hold, one class for each law. A run tells the judge what it sees; a law that is broken raises `Violation`.

Laws look from four places: at the drive (what is durable), at the node's API (what is asked and answered), into the
node's memory (between two turns of the loop), and at what members believe.
"""

from collections.abc import Callable
from typing import Any

from tests.simulation.checker import Checker, Sight
from tests.simulation.laws_of_channels import I13Connections, I14Graces, I15Letters, I16Pushes, I17Attempts
from tests.simulation.laws_of_commits import I3Commits, I4Fencing
from tests.simulation.laws_of_damage import I18Damage
from tests.simulation.laws_of_generations import I1Generations, I2SyncAnswers, I5Instances, MembersBelieve
from tests.simulation.laws_of_holds import I11Holds
from tests.simulation.laws_of_joining import I19JoinPhases, I22JoinsOnce
from tests.simulation.laws_of_ownership import I12OneAtWork
from tests.simulation.laws_of_removal import I21Removed, I23Rest
from tests.simulation.laws_of_rest import (
    GroupInvariants,
    I6Answers,
    I7Liveness,
    I8Leaks,
    I9Quiet,
    I10Store,
)
from tests.simulation.laws_of_time import I20ServiceTime

HOOKS = (
    "stored",
    "on_call",
    "on_answer",
    "deleting",
    "deleted",
    "waits",
    "hung_up",
    "framed",
    "rested",
    "sent",
    "channel_ended",
    "went",
    "dropped",
    "happened",
    "turned",
    "node_began",
    "believed",
    "heard",
)


class Judge:
    """All laws. Those that a run's stages ask by themselves have a name here."""

    def __init__(self, sight: Sight) -> None:
        i2 = I2SyncAnswers(sight)
        self.i6 = I6Answers(sight)
        self.i7 = I7Liveness(sight)
        self.i8 = I8Leaks(sight)
        self.i9 = I9Quiet(sight)
        self.i10 = I10Store(sight)
        self.i13 = I13Connections(sight)
        self.i18 = I18Damage(sight)
        self.i19 = I19JoinPhases(sight)
        self.laws: tuple[Checker, ...] = (
            I1Generations(sight),
            i2,
            I3Commits(sight),
            I4Fencing(sight),
            I5Instances(sight),
            self.i6,
            self.i7,
            self.i8,
            self.i9,
            self.i10,
            I11Holds(sight),
            I12OneAtWork(sight),
            self.i13,
            I14Graces(sight, self.i13),
            I15Letters(sight),
            I16Pushes(sight, self.i13),
            I17Attempts(sight),
            self.i18,
            self.i19,
            I20ServiceTime(sight),
            I21Removed(sight),
            I22JoinsOnce(sight),
            I23Rest(sight),
            GroupInvariants(sight),
            MembersBelieve(sight, i2),
        )
        self._listeners: dict[str, list[Callable[..., None]]] = {
            hook: [getattr(law, hook) for law in self.laws if getattr(type(law), hook) is not getattr(Checker, hook)]
            for hook in HOOKS
        }

    def tell(self, hook: str, *seen: Any, **named: Any) -> None:
        """One of `HOOKS` happened. Only the laws that look at it cost anything."""
        for listen in self._listeners[hook]:
            listen(*seen, **named)
