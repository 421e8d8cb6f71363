"""``python -m bench.compare``: the same as ``./allod bench``."""

import sys

from bench.compare.cli import main

sys.exit(main())
