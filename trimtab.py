"""The program `trimtab`, which puts Trimtab's own packages before anybody else's of their names.

In the repository they stand beside this file. In the wheel this file is the package `trimtab`, and
they stand in its folder: site-packages gets no `data` and no `dashboard`. See docs/decisions/0009.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

_PACKAGES = ("data", "collectors", "forecasting", "planner", "dashboard")


def own_packages_first() -> None:
    """Import the five packages of this installation, whatever the path holds by their names.

    Submodules follow their package, so no later change of the path brings a foreign one in. A
    worker of Ray calls this too; processes of loky are given the path.
    """
    own = str(Path(__file__).resolve().parent)
    if sys.path[:1] != [own]:
        sys.path.insert(0, own)
    for package in _PACKAGES:
        import_module(package)


def program() -> NoReturn:
    """Run the command that this process was started for, and end the process.

    Matrices here are small: threads of OpenBLAS for them cost CPU time and save none.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    own_packages_first()
    from dashboard.cli import program as run

    run()


if __name__ == "__main__":
    program()
