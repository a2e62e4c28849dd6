"""Run `python -m benchmarks.simulation`; --help lists the options."""

import sys

from benchmarks.simulation.command import main

sys.exit(main())
