"""One row of the append-only record of who did what."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One row of the append-only record; `entry_hash` covers the row and `previous_hash`.

    `covers` names the row of another table (`journal:7`) whose content `row_digest` is.
    """

    sequence: int
    at: datetime
    actor: str
    event: str
    digest: str
    detail: str
    previous_hash: str
    entry_hash: str
    covers: str = ""
    row_digest: str = ""
