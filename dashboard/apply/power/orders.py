"""Orders to a node, and reports of the node's agent. Watts are whole numbers."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from data.base.clock import require_utc

MAX_WATTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """A limit that is wanted on one board, for one job."""

    gpu_uuid: str
    watts: int
    job_id: str

    def __post_init__(self) -> None:
        if not 0 < self.watts <= MAX_WATTS:
            raise ValueError(f"{self.watts} W is no power limit")


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
    limit_watts: float | None
    default_watts: float | None
    least_watts: float | None
    most_watts: float | None
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


def order_payload(order: CapOrder) -> dict[str, Any]:
    """Return the order as plain values."""
    return asdict(order) | {
        "issued_at": order.issued_at.isoformat(),
        "expires_at": order.expires_at.isoformat(),
    }


def order_from(payload: dict[str, Any]) -> CapOrder:
    """Read an order. Errors: ValueError, KeyError, TypeError."""
    return CapOrder(
        node=str(payload["node"]),
        sequence=int(payload["sequence"]),
        issued_at=datetime.fromisoformat(payload["issued_at"]),
        expires_at=datetime.fromisoformat(payload["expires_at"]),
        caps=tuple(
            Cap(gpu_uuid=str(cap["gpu_uuid"]), watts=int(cap["watts"]), job_id=str(cap["job_id"]))
            for cap in payload["caps"]
        ),
    )


def report_payload(report: NodeReport) -> dict[str, Any]:
    """Return the report as plain values."""
    return asdict(report) | {"at": report.at.isoformat()}


def report_from(payload: dict[str, Any]) -> NodeReport:
    """Read a report. Errors: ValueError, KeyError, TypeError."""
    return NodeReport(
        node=str(payload["node"]),
        at=datetime.fromisoformat(payload["at"]),
        sequence=int(payload["sequence"]),
        note=str(payload["note"]),
        boards=tuple(_board(board) for board in payload["boards"]),
    )


def _board(board: dict[str, Any]) -> BoardReport:
    return BoardReport(
        gpu_uuid=str(board["gpu_uuid"]),
        index=str(board["index"]),
        limit_watts=_watts(board["limit_watts"]),
        default_watts=_watts(board["default_watts"]),
        least_watts=_watts(board["least_watts"]),
        most_watts=_watts(board["most_watts"]),
        held_watts=None if board["held_watts"] is None else int(board["held_watts"]),
        error=str(board["error"]),
    )


def _watts(value: Any) -> float | None:
    if value is None:
        return None
    watts = float(value)
    if not 0 <= watts <= MAX_WATTS:  # nor is NaN
        raise ValueError(f"{watts} W of a board")
    return watts
