"""Run `python -m benchmarks.simulation`; --help lists the options."""

import sys

from benchmarks.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
