"""What the tests of one folder share, and no longer than them."""

from contextlib import ExitStack
from pathlib import Path

import pytest


class FolderEnds:
    """Ends what the tests of a folder share once the next test is of another folder.

    An idle Kubernetes takes 6 % of a core, for as long as the session would keep it.
    """

    def __init__(self) -> None:
        self._open: dict[Path, ExitStack] = {}

    def of(self, folder: Path) -> ExitStack:
        """Return what is closed when the tests leave the folder, last entered first."""
        return self._open.setdefault(folder, ExitStack())

    @pytest.hookimpl(trylast=True)  # after what the last test had for itself
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """Close what is left. Tests run folder by folder, in every worker too."""
        for folder in list(self._open):
            if nextitem is not None and folder not in nextitem.path.parents:
                self._open.pop(folder).close()

    def close(self) -> None:
        """Close all at the end of the session."""
        while self._open:
            self._open.popitem()[1].close()
