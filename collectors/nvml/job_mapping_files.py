"""Job mapping files, which a Slurm prolog writes and its epilog removes.

Two habits are read. dcgm-exporter: a file `0` (board) or `0.3` (board and GPU instance), one job id
a line. jobstats: a file named by ordinal, `GPU-UUID` or `MIG-UUID`, with `JOBID UID`.
An epilog that failed leaves a file behind: one older than the last boot is not believed, and the
caller does not believe one that running processes contradict.
"""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

_LINE = re.compile(r"([0-9]{1,10})(?:[ \t]+[0-9]{1,10})?")
_MAX_FILE = 4096
_BOOT = re.compile(r"^btime ([0-9]{1,12})$", re.MULTILINE)


def booted_at(proc_root: Path) -> float | None:
    """Return the time of the last boot in s since the epoch, None when not known."""
    try:
        text = (proc_root / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = _BOOT.search(text)
    return float(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class MappingFiles:
    """One folder of mapping files. `booted` is the time of the last boot, s since the epoch."""

    folder: Path
    booted: float | None = None
    reasons: list[str] = field(default_factory=list)

    def holders(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the jobs (`slurm:ID`) of the first of the named files that names any.

        Why a file was not believed is appended to `reasons`.
        """
        for name in names:
            jobs = self._holders_in(name)
            if jobs:
                return jobs
        return ()

    def _holders_in(self, name: str) -> tuple[str, ...]:
        try:
            # a FIFO in the folder must not stop the collector, nor a link lead out of it
            descriptor = os.open(
                self.folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except FileNotFoundError:
            return ()
        except OSError as error:
            self.reasons.append(f"mapping file: {error.strerror or 'unreadable'}")
            return ()
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                self.reasons.append("mapping file: no regular file")
                return ()
            if self.booted is not None and status.st_mtime < self.booted:
                self.reasons.append("mapping file: older than the last boot")
                return ()
            content = os.read(descriptor, _MAX_FILE + 1)
        finally:
            os.close(descriptor)
        return self._parsed(content)

    def _parsed(self, content: bytes) -> tuple[str, ...]:
        lines = content.decode("utf-8", errors="replace").splitlines()
        written = [line.strip() for line in lines if line.strip()]
        matches = [_LINE.fullmatch(line) for line in written]
        if len(content) > _MAX_FILE or not all(matches):
            self.reasons.append("mapping file: malformed")
            return ()
        return tuple(sorted({f"slurm:{int(match[1])}" for match in matches if match}))
