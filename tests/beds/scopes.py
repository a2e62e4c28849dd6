"""Which tests one worker of pytest-xdist runs: those of a file, or of a folder with a cluster."""

from xdist.scheduler import LoadFileScheduling

_SHARED = (
    "tests/browser/",
    "tests/dashboard/apply/",
    "tests/dashboard/apply_git/",
    "tests/dashboard/kubernetes_apply/",
    "tests/dashboard/submission/on_kubernetes/",
    "tests/dashboard/submission/on_slurm/",
)
"""Folders with a session-wide Slurm, Kubernetes, or server and Chromium: 10 to 30 s to start."""


class FolderScheduling(LoadFileScheduling):
    """As `loadfile`, but these folders are one piece of work each."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in _SHARED if nodeid.startswith(folder)), "") or (
            super()._split_scope(nodeid)
        )
