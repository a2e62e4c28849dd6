"""Run `python -m benchmarks.rightsizing`; --help lists the options."""

import sys

from benchmarks.rightsizing.command import main

if __name__ == "__main__":
    sys.exit(main())
