"""Run `python -m benchmarks.rightsizing`; --help lists the options."""

import sys

from benchmarks.rightsizing.command import main

sys.exit(main())
