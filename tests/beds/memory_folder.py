"""A folder in memory for the temporary files of a run.

Each commit of DuckDB, etcd, MariaDB and Slurm waits for the disk: 25 ms on a usual one, of which 5
are CPU time. Power loss is not what the tests are about, and memory outlives a killed process.
"""

import os
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 shared memory; the folder in it is checked
_LEAST_FREE_BYTES = 6 << 30
"""Three workers keep 1 GiB at a time; the rest of such a machine's memory is theirs."""


def memory_folder() -> str:
    """Return a folder of this account in memory; '' where TMPDIR names one or there is no room."""
    if os.environ.get("TMPDIR"):
        return ""
    try:
        about = os.statvfs(_MEMORY)
        folder = _MEMORY / f"tt{os.geteuid()}"  # short: sockets lie below it
        folder.mkdir(exist_ok=True)
    except OSError:
        return ""
    runs_programs = not about.f_flag & os.ST_NOEXEC
    is_ours = folder.lstat().st_uid == os.geteuid() and folder.is_dir() and not folder.is_symlink()
    has_room = about.f_bavail * about.f_frsize >= _LEAST_FREE_BYTES
    return str(folder) if runs_programs and is_ours and has_room else ""
