"""`python -m tests.cluster_faults`."""

import sys

from tests.cluster_faults.command import main

if __name__ == "__main__":
    sys.exit(main())
