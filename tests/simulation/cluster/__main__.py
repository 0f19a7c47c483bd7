"""`python -m tests.simulation.cluster`."""

import sys

from tests.simulation.cluster.command import main

if __name__ == "__main__":
    sys.exit(main())
