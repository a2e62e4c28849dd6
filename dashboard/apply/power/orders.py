"""Orders to a node, and reports of the node's agent. Watts are whole numbers."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter

from data.base.clock import require_utc

MAX_WATTS = 10_000
Watts = Annotated[float, Field(ge=0, le=MAX_WATTS, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """A limit that is wanted on one board, for one job."""

    gpu_uuid: str
    watts: Annotated[int, Field(gt=0, le=MAX_WATTS)]
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapOrder:
    """The caps wanted on a node until `expires_at`; the agent holds them no longer.

    `sequence` only ever grows, so that an older order cannot be played again.
    """

    node: str
    sequence: int
    issued_at: datetime
    expires_at: datetime
    caps: tuple[Cap, ...]

    def __post_init__(self) -> None:
        require_utc("issued_at", self.issued_at)
        require_utc("expires_at", self.expires_at)

    def wanted(self) -> dict[str, int]:
        """Return watts by GPU UUID."""
        return {cap.gpu_uuid: cap.watts for cap in self.caps}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardReport:
    """One board as the agent sees it; None where the driver does not say.

    `held_watts` is the cap that the agent holds, `error` why it does not hold what is wanted.
    """

    gpu_uuid: str
    index: str
    limit_watts: Watts | None
    default_watts: Watts | None
    least_watts: Watts | None
    most_watts: Watts | None
    held_watts: int | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """Report of an agent at `at`, after reading order `sequence` (0: none)."""

    node: str
    at: datetime
    sequence: int
    note: str
    boards: tuple[BoardReport, ...]


Record = TypeVar("Record", CapOrder, NodeReport)


def payload_of(record: CapOrder | NodeReport) -> dict[str, Any]:
    """Return a record as plain values."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(record).items()
    }


def record_from(kind: type[Record], payload: dict[str, Any]) -> Record:
    """Read a record. Errors: ValueError, which names what does not fit."""
    return TypeAdapter(kind).validate_python(payload)
