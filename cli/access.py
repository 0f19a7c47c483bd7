"""The command line of `rallypoint access`.

Exit status: 0 yes, or a file without faults; 1 no, or a file with faults; 2 usage error.
"""

import argparse
import os
from pathlib import Path

from rallypoint.cli.endings import fail, say
from rallypoint.coordinator.access.policy import ANY, RIGHTS, RIGHTS_ON, Decision, Resource
from rallypoint.coordinator.access.policy_file import (
    FILE_MAX_BYTES,
    AccessFile,
    read_access,
    read_resource,
    why_nobody,
)
from rallypoint.coordinator.access.principals import is_principal
from rallypoint.coordinator.http.access.watched_files import FileProblem, check_authorities
from rallypoint.coordinator.settings import variable_of

STATUSES = (
    "Exit status: 0 yes, or the file has no faults; 1 no, or the file has faults or cannot be read; 2 usage error."
)


def add_access(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = "Work on a policy file without the service."
    actions = parser.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    check = actions.add_parser(
        "check",
        help="check a policy file, or say whether it allows something, and why",
        usage="rallypoint access check PATH\n"
        "       rallypoint access check [--access PATH] [--exact] --as PRINCIPAL RIGHT RESOURCE",
        description="Check a policy file: `rallypoint access check PATH`. Or say whether it allows something, and which"
        " rule decides: `rallypoint access check --access PATH --as token:etl join group:clicks`.",
        epilog=STATUSES,
        allow_abbrev=False,
    )
    check.add_argument(
        "words",
        nargs="+",
        metavar="WORD",
        help=f"the file to check; or, with --as, a right ({', '.join(RIGHTS)}) and what it is on (cluster, group:NAME,"
        " topic:NAME)",
    )
    check.add_argument(
        "--access", type=Path, metavar="PATH", help=f"the policy file. In the environment: {variable_of('access')}"
    )
    check.add_argument(
        "--as",
        action="append",
        dest="principals",
        metavar="PRINCIPAL",
        help="for whom it is asked: token:NAME, cert:NAME, oidc:SUBJECT or anonymous. Give it again for each further"
        " name of the same caller: of its certificate, or oidc-group:GROUP",
    )
    check.add_argument(
        "--exact",
        action="store_true",
        help="the resource's name is meant as it stands: ids may end in a star",
    )


def run_access(given: argparse.Namespace) -> int:
    """Read the file, and answer."""
    if not given.principals:
        if len(given.words) != 1 or given.access is not None or given.exact:
            return fail("Name one file to be checked, or say with --as for whom it is asked.", 2)
        return _check_file(Path(given.words[0]))
    if len(given.words) != 2:
        return fail("Behind --as stand a right and a resource, as in: --as token:etl join group:clicks", 2)
    path = given.access or os.environ.get(variable_of("access"))
    if not path:
        return fail(f"Name the policy file: --access PATH, or {variable_of('access')}.", 2)
    return _check_right(Path(path), tuple(given.principals), *given.words, is_exact=given.exact)


def _check_file(path: Path) -> int:
    found = _read(path)
    if isinstance(found, str):
        return fail(found, 1)
    for problem in found.problems:
        fail(f"{path}: {problem}", 1)
    if found.problems:
        return 1
    try:
        check_authorities(found.issuers)
    except FileProblem as problem:
        return fail(f"{path}: {problem}", 1)
    rules, issuers = len(found.policy.rules), len(found.issuers)
    counts = f"{rules} {'rule' if rules == 1 else 'rules'}"
    if issuers:
        counts += f", {issuers} {'issuer' if issuers == 1 else 'issuers'}"
    say(f"{path} has no faults: {counts}.")
    return 0


def _check_right(path: Path, principals: tuple[str, ...], right: str, resource: str, *, is_exact: bool) -> int:
    for principal in principals:
        if not is_principal(principal):
            kinds = "token:NAME, cert:NAME, oidc:SUBJECT, oidc-group:GROUP or anonymous"
            return fail(f"--as {principal!r} is no principal: {kinds}.", 2)
    wanted = read_resource(resource)
    if wanted is not None and wanted.is_prefix and is_exact:
        wanted = Resource(wanted.kind, f"{wanted.name}{ANY}")
    if wanted is None or wanted.is_prefix:
        hint = "" if wanted is None else " If the name itself ends in *, say --exact."
        return fail(f"{resource!r} is no single resource: cluster, group:NAME or topic:NAME.{hint}", 2)
    if right not in RIGHTS_ON[wanted.kind]:
        there_are = ", ".join(RIGHTS_ON[wanted.kind])
        return fail(f"{right!r} is no right on a {wanted.kind}; there are: {there_are}.", 2)
    found = _read(path)
    if isinstance(found, str):
        return fail(found, 1)
    if found.problems:
        return fail(f"{path} has faults, so the service would not use it: {found.problems[0]}", 1)
    for principal in principals:
        if (reason := why_nobody(principal, found.issuers)) is not None:
            return fail(f"--as {principal!r} {reason}.", 2)
    decision = found.policy.explain(principals, right, wanted.kind, wanted.name)
    say(_sentence(path, principals, right, resource, decision))
    return 0 if decision.is_allowed else 1


def _sentence(path: Path, principals: tuple[str, ...], right: str, resource: str, decision: Decision) -> str:
    who = " with ".join((principals[0], ", ".join(principals[1:]))) if len(principals) > 1 else principals[0]
    rule = decision.rule
    if rule is None:
        return f"No: no rule of {path} allows {who} to {right} {resource}, and what no rule allows is refused."
    answer, verb = ("Yes", "allows") if decision.is_allowed else ("No", "denies")
    on = ", ".join(map(str, rule.on))
    about = f"who: {', '.join(rule.who)}; on: {on}"
    return f"{answer}: the rule at line {rule.line} of {path} ({about}) {verb} {who} to {right} {resource}."


def _read(path: Path) -> AccessFile | str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
        if len(data) > FILE_MAX_BYTES:
            return f"{path} has more than {FILE_MAX_BYTES} bytes."
        return read_access(data.decode())
    except UnicodeDecodeError:
        return f"{path} is not UTF-8."
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}."
