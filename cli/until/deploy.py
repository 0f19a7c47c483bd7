"""The command line of `rallypoint deploy`: a command that restarts members costs the group one rebalance.

The group is frozen, the command runs, and the freeze ends by itself when each member has gone and come back. Whatever
ends this command ends the freeze.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rallypoint.cli.calls.client import Client, Json
from rallypoint.cli.calls.failures import CONDITION, DONE, FAILED, INTERRUPTED, CallFailed, Unreachable
from rallypoint.cli.output.terminal import Progress
from rallypoint.cli.output.text import counted, list_text, shown
from rallypoint.cli.output.times import duration
from rallypoint.cli.running import add_calling, duration_flag, run_calls, warn

TIMEOUT_MS = 900_000
POLL_S = 0.25
SETTLE_MS = 120_000
"""How long the rebalance after the freeze is waited for."""
OVERDUE_S = 30.0
"""How long a service that does not answer is waited for when the freeze is over by the time."""

FORWARDED = (signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C goes to the command by itself: the terminal sends it to both."""


def add_deploy(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Freeze a group, run a command that restarts its members, wait until all of them are back, and let one"
        " rebalance follow. The status of the command is handed on; if it fails, and after Ctrl-C, the freeze ends at"
        " once. Ends with 5 if members are missing when the time is over."
    )
    parser.epilog = (
        "Example: rallypoint deploy billing -- kubectl rollout restart deployment/billing. Exit status: that of the"
        " command if it is not 0; else 0 done, 1 failed, 2 usage error, 3 no node answers, 4 not allowed, 5 members are"
        " missing, 127 the command cannot be run, 130 Ctrl-C."
    )
    parser.add_argument("group", metavar="GROUP", help="the id of the group")
    parser.add_argument("words", nargs="+", metavar="CMD", help="the command and its arguments, behind --")
    parser.add_argument(
        "--until",
        choices=("replaced", "present", "command"),
        default="replaced",
        help="when the freeze ends: replaced, each member has gone and come back; present, all are there again once one"
        " had gone; command, the command has ended. Default: replaced.",
    )
    parser.add_argument(
        "--timeout",
        type=duration_flag,
        default=TIMEOUT_MS,
        metavar="TIME",
        help="the freeze ends at the latest after this time. Default: 15m, which is the longest that services allow.",
    )
    parser.add_argument(
        "--reason", metavar="TEXT", help="why; whoever describes the group sees it. Default: the command."
    )
    add_calling(parser, forms=("table",), curl=False)


def run_deploy(given: argparse.Namespace) -> int:
    """Run the command. Returns its exit status."""
    return run_calls(given, lambda client, _: Deploy(client, given).run())


class Deploy:
    """One deployment of a group."""

    def __init__(self, client: Client, given: argparse.Namespace) -> None:
        """Freeze nothing yet."""
        self._client = client
        self._given = given
        self._signal: int | None = None
        self._ends_at_s = 0.0
        self._has_frozen = False

    def run(self) -> int:
        """The exit status. Raises CallFailed if the group cannot be frozen: the command is then not run."""
        group = self._client.call("describe", group_id=self._given.group)
        count = len(group["members"])
        if not count:
            warn(f"Group {shown(self._given.group)!r} has no members: the command runs without a freeze.")
            return self._command()
        with self._signals():
            try:
                self._freeze(count)
                return self._frozen(group)
            except KeyboardInterrupt:
                self._thaw()
                return INTERRUPTED
            except CallFailed as error:
                # A freeze that was refused is not there: one that holds is somebody else's.
                if self._has_frozen or isinstance(error, Unreachable):
                    self._thaw()
                raise

    def _frozen(self, group: Json) -> int:
        status = self._command() or self._interrupted()
        if status:
            self._thaw()
            return status
        if self._given.until == "command":
            self._thaw()
        else:
            missing = self._back()
            if self._interrupted():
                self._thaw()
                return self._interrupted()
            if missing:
                warn(f"The time is over, and {missing} not back. The group goes on without.")
                return CONDITION
        return self._settled(group)

    def _interrupted(self) -> int:
        """The status after a signal; 0 while none came."""
        return 0 if self._signal is None else 128 + self._signal

    def _freeze(self, count: int) -> None:
        until = {"replaced": "members_replaced", "present": "members_present", "command": "time"}[self._given.until]
        reason = self._given.reason or f"deploy: {' '.join(self._given.words)}"
        wanted = {"duration_ms": self._given.timeout, "until": until, "reason": reason[:255]}
        self._client.call("freeze", body=wanted, group_id=self._given.group)
        self._has_frozen = True
        self._ends_at_s = time.monotonic() + self._given.timeout / 1_000
        _say(f"froze group {shown(self._given.group)} with {counted(count, 'member')}")

    def _thaw(self) -> None:
        try:
            self._client.call("thaw", group_id=self._given.group)
            _say("ended the freeze")
        except CallFailed as error:
            warn(f"The freeze is not ended: {error} It ends by itself after {duration(self._given.timeout)}.")

    def _command(self) -> int:
        """Run the command to its end, whatever interrupts this one. Its status, as a shell has it."""
        try:
            process = subprocess.Popen(self._given.words)
        except OSError as error:
            warn(f"{shown(self._given.words[0])} cannot be run: {error.strerror}.")
            return 127
        sent: int | None = None
        while True:
            try:
                code = process.wait(POLL_S)
                break
            except subprocess.TimeoutExpired:
                pass
            except KeyboardInterrupt:
                self._signal = signal.SIGINT
            if self._signal in FORWARDED and self._signal != sent:
                sent = self._signal
                process.send_signal(sent)
        return code if code >= 0 else 128 - code

    def _back(self) -> str:
        """Wait until the freeze is over. Who is missing at its end, as a clause; empty if nobody is."""
        said = ""
        with Progress() as progress:
            while not self._interrupted():
                try:
                    found = self._client.call("describe", group_id=self._given.group)
                except Unreachable as error:
                    if time.monotonic() >= self._ends_at_s + OVERDUE_S:
                        raise
                    progress.say(str(error))
                else:
                    if found["frozen_until_ms"] is None:
                        break
                    said = missing_text(found)
                    progress.say(f"{said} not back yet")
                time.sleep(POLL_S)
        # The service ended it: before its time if all are there, and then only.
        return said if time.monotonic() >= self._ends_at_s - POLL_S else ""

    def _settled(self, group: Json) -> int:
        """Wait for the rebalance that follows, and say how it went."""
        deadline_s = time.monotonic() + SETTLE_MS / 1_000
        with Progress() as progress:
            while not self._interrupted():
                try:
                    found = self._client.call("describe", group_id=self._given.group)
                except Unreachable as error:
                    if time.monotonic() >= deadline_s:
                        raise
                    progress.say(str(error))
                    time.sleep(POLL_S)
                    continue
                if found["state"] == "Stable" and not found["held_count"]:
                    return self._ended(group, found)
                if time.monotonic() >= deadline_s:
                    name = shown(self._given.group)
                    warn(f"Group {name!r} is {found['state']} yet: `rallypoint awaited` says whom it waits for.")
                    return FAILED
                progress.say(f"the group is {found['state']}")
                time.sleep(POLL_S)
        return self._interrupted()

    def _ended(self, group: Json, found: Json) -> int:
        """Say how many are there. Somebody else may have ended the freeze before all were."""
        former = {member["member_id"] for member in group["members"]}
        made = counted(found["rebalance_id"] - group["rebalance_id"], "rebalance")
        there = f"{len(found['members']):,} of {counted(len(former), 'member')} are there, after {made}"
        rest = former & {member["member_id"] for member in found["members"]}
        if self._given.until == "replaced" and rest:
            warn(f"The freeze was ended before {counted(len(rest), 'member')} had gone and come back; {there}.")
            return CONDITION
        if self._given.until != "command" and len(found["members"]) < len(former):
            warn(f"Members are missing: {there}.")
            return CONDITION
        _say(f"deployed: {there}")
        return DONE

    @contextmanager
    def _signals(self) -> Iterator[None]:
        former = {number: signal.getsignal(number) for number in FORWARDED}

        def note(number: int, _: FrameType | None) -> None:
            self._signal = number

        try:
            for number, handler in former.items():
                if handler is not signal.SIG_IGN:  # as under nohup
                    signal.signal(number, note)
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


def missing_text(group: Json) -> str:
    """Whom a freeze still waits for, with a verb behind it."""
    count = group["freeze_missing_count"]
    if not count:
        return "the last one is"
    names = list_text(list(group["freeze_missing"]), 3)
    return f"{names} ({counted(count, 'member')}) {'is' if count == 1 else 'are'}"


def _say(text: str) -> None:
    """Standard output is the command's."""
    print(f"rallypoint: {text}", file=sys.stderr, flush=True)
