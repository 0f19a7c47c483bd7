"""`python -m examples.exactly_once`."""

import sys

from examples.exactly_once.demo import main

sys.exit(main())
