"""Free space on the disk of a store, and the floor below which nothing is collected.

A full disk would take the store's own decisions and everything else on the machine with it: facts
can be fetched again, so they wait first.
"""

import shutil
from pathlib import Path

import sqlalchemy as sa

from data.base.errors import NoRoomError
from data.store.engine.dialects import is_postgres

MIN_FREE_MIB = 500.0
"""With less, the store could soon not keep a decision, nor the machine do its other work."""
_MEBIBYTE = 2**20


def free_mib(engine: sa.Engine) -> float | None:
    """Return the free space where a DuckDB file lies, MiB.

    None where a database server keeps it.
    """
    if is_postgres(engine) or not engine.url.database:
        return None
    try:
        return shutil.disk_usage(Path(engine.url.database).absolute().parent).free / _MEBIBYTE
    except OSError:
        return None


def require_room(free: float | None) -> None:
    """Refuse to collect (NoRoomError) below `MIN_FREE_MIB`; unknown is enough."""
    if free is not None and free < MIN_FREE_MIB:
        raise NoRoomError(
            f"nothing is collected: the disk of the store has {free:.0f} MiB left, below the "
            f"{MIN_FREE_MIB:g} MiB that a cycle needs",
            "Free space; the next cycle goes on by itself and fetches what was missed.",
        )
