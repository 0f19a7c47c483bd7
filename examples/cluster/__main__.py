"""`python -m examples.cluster`."""

import sys

from examples.cluster.demo import main

if __name__ == "__main__":
    sys.exit(main())
