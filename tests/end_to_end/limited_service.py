"""`rallypoint serve` with limits that are fixed for everybody else: the first argument has them, as a JSON object."""

import json
import sys

from rallypoint.cli.flags import given_settings
from rallypoint.cli.main import make_parser
from rallypoint.coordinator.main import run
from rallypoint.coordinator.settings import load_settings


def main(arguments: list[str]) -> None:
    limits, *flags = arguments
    given = make_parser().parse_args(["serve", *flags])
    run(load_settings(given_settings(given)), "limited", json.loads(limits))


if __name__ == "__main__":
    main(sys.argv[1:])
