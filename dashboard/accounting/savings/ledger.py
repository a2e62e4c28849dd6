"""The savings ledger: what applied changes promised, and what they were measured to bring."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from data.records.commands import CommandKind, Measurement
from data.records.recommendations import Range, Recommendation
from data.store import StoreReader
from data.store.engine.record_json import from_json

MEASURED = ("verified", "fell-short", "unmeasured")
ENDED_OUTCOMES = ("undone-outside", "changed-outside", "target-gone", "replaced")
_UNMEASURED = dict.fromkeys(ENDED_OUTCOMES, "it ended before it could be measured")
STANDING_OUTCOMES = ("applied", "applied-differently", "failing")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One applied recommendation; `measurement` None while its slots are not over.

    `reference` is how people name its finding.
    """

    reference: str
    recommendation: Recommendation
    state: str
    applied_at: datetime
    measured_at: datetime | None
    measurement: Measurement | None

    @property
    def reason(self) -> str:
        """Reason that a figure is unknown, '' when all are known."""
        if self.measurement is None:
            return _UNMEASURED.get(self.state, "not measured yet")
        return "; ".join(self.measurement.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Sums over the rows of which both sides are known; `unknown` counts the others."""

    measured: int
    unknown: int
    predicted: Range | None
    realised: Range | None


def ledger(reader: StoreReader, *, now: datetime) -> tuple[LedgerRow, ...]:
    """Return a row per recommendation that was ever applied, the latest first."""
    applies = {
        entry.command.command_id
        for entry in reader.commands()
        if entry.command.kind is CommandKind.APPLY
    }
    applied: dict[str, datetime] = {}
    measured: dict[str, tuple[datetime, Measurement]] = {}
    for row in reader.journal(events=(*STANDING_OUTCOMES, *MEASURED)):
        if row.command_id not in applies:
            continue
        if row.event in STANDING_OUTCOMES:
            applied.setdefault(row.digest, row.at)
        elif row.record:
            measured[row.digest] = (row.at, from_json(Measurement, row.record))
    rows = []
    stored_by_digest = reader.recommendations_of(applied, now=now)
    for digest, at in applied.items():
        stored = stored_by_digest[digest]
        result = measured.get(digest)
        rows.append(
            LedgerRow(
                reference=stored.reference,
                recommendation=stored.recommendation,
                state=stored.state,
                applied_at=at,
                measured_at=result[0] if result else None,
                measurement=result[1] if result else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: row.applied_at, reverse=True))


def total_gpu_hours(rows: Iterable[LedgerRow]) -> Total:
    """Add up GPU-hours, predicted and realised, of the rows that have both."""
    return _total(rows, "gpu_hours")


def total_energy(rows: Iterable[LedgerRow]) -> Total:
    """Add up site energy, predicted and realised, of the rows that have both."""
    return _total(rows, "energy_kwh")


def total_emissions(rows: Iterable[LedgerRow]) -> Range | None:
    """Add up the location-based emissions that were really saved; None when none is known."""
    return sum_of(
        [
            row.measurement.realised_emissions_kgco2e
            for row in rows
            if row.measurement and row.measurement.realised_emissions_kgco2e
        ]
    )


def _total(rows: Iterable[LedgerRow], quantity: str) -> Total:
    measurements = [row.measurement for row in rows]
    ranges = [
        (predicted, realised)
        for measurement in measurements
        if (predicted := getattr(measurement, f"predicted_{quantity}", None)) is not None
        and (realised := getattr(measurement, f"realised_{quantity}", None)) is not None
    ]
    return Total(
        measured=len(ranges),
        unknown=len(measurements) - len(ranges),
        predicted=sum_of([entry for entry, _other in ranges]),
        realised=sum_of([other for _one, other in ranges]),
    )


def sum_of(ranges: Sequence[Range]) -> Range | None:
    """Return the sum of ranges, their errors taken as alike; None of none."""
    if not ranges:
        return None
    return Range(
        low=sum(entry.low for entry in ranges),
        central=sum(entry.central for entry in ranges),
        high=sum(entry.high for entry in ranges),
        unit=ranges[0].unit,
    )
