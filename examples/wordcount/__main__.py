"""`python -m examples.wordcount`."""

import sys

from examples.wordcount.demo import main

sys.exit(main())
