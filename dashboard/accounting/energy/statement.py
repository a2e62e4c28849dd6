"""The statement as a value; `build` makes it, `export` writes it down.

E_site = E_gpu x PUE; location-based CO2e = sum of E_site x CI over hours, market-based with the
contracts' factor instead (GHG Protocol Scope 2, both reported, never mixed); embodied M = TE x TS x
RS and SCI = (E x I + M) / R (ISO/IEC 21031:2024). Interval arithmetic over all ranges.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dashboard.accounting.energy.factors import Factor, Factors, embodied_factors
from dashboard.accounting.energy.periods import Calendar
from dashboard.accounting.energy.work_units import UnitScore
from data.records.recommendations import Range

WORK_UNIT = "GPU-hour of work"
"""R of the SCI: an hour of a whole board at full activity; half an hour counts for two at half."""


WHOLE_RATIO = 0.9995
"""From here on a share reads 100.0 %."""


class GroupBy(StrEnum):
    """By what a statement is told apart; a tenant is what the setting tenants.by says."""

    FLEET = "fleet"
    TENANT = "tenant"
    NAMESPACE = "namespace"
    ACCOUNT = "account"
    OWNER = "owner"
    JOB = "job"
    MODEL = "model"
    NODE = "node"
    CLUSTER = "cluster"


class Holder(StrEnum):
    """Who a row's boards worked for; any where rows are no jobs', missing where none was seen."""

    JOB = "job"
    FREE = "free"
    UNATTRIBUTED = "unattributed"
    ANY = "any"
    MISSING = "missing"


_NAMES = {
    Holder.FREE: "(not allocated)",
    Holder.UNATTRIBUTED: "(unattributed)",
    Holder.MISSING: "(not observed)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRow:
    """One group in one period [start, end). Amounts are those of its measured time.

    `board_hours` were observed, `measured_hours` of them with power; jobs held `gpu_hours`, of
    which `idle_gpu_hours` did nothing and `used_gpu_hours` worked. None where nothing was
    reported, never 0. `embodied_hours` are the board-hours whose model has a known footprint;
    `scored_hours` those that the SCI covers (energy, activity and footprint known), and
    `work_gpu_hours` the work done in them.
    """

    start: datetime
    end: datetime
    holder: Holder
    key: str
    board_hours: float
    measured_hours: float
    gpu_hours: float | None
    idle_gpu_hours: float | None
    used_gpu_hours: float | None
    gpu_energy_kwh: Range | None
    site_energy_kwh: Range | None
    location_kgco2e: Range | None
    market_kgco2e: Range | None
    embodied_kgco2e: Range | None
    electricity_cost: Range | None
    sci_gco2e: Range | None
    embodied_hours: float
    scored_hours: float
    work_gpu_hours: float | None

    @property
    def name(self) -> str:
        """Name for people."""
        return _NAMES.get(self.holder) or self.key or "(no name)"

    @property
    def measured_ratio(self) -> float | None:
        """Share of its board-time of which energy is known, 0..1."""
        return min(1.0, self.measured_hours / self.board_hours) if self.board_hours else None

    @property
    def embodied_ratio(self) -> float | None:
        """Share of its board-time whose model has a known footprint, 0..1."""
        return min(1.0, self.embodied_hours / self.board_hours) if self.board_hours else None

    @property
    def scored_ratio(self) -> float | None:
        """Share of its board-time that the SCI covers, 0..1."""
        return min(1.0, self.scored_hours / self.board_hours) if self.board_hours else None

    @property
    def embodied_share(self) -> float | None:
        """Embodied part of all location-based emissions, 0..1; None unless both are known whole."""
        if self.embodied_kgco2e is None or self.location_kgco2e is None:
            return None
        if min(self.embodied_ratio or 0.0, self.measured_ratio or 0.0) < WHOLE_RATIO:
            return None
        total = self.embodied_kgco2e.central + self.location_kgco2e.central
        return self.embodied_kgco2e.central / total if total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EsgStatement:
    """Energy and emissions of [start, end), by group and period.

    `rows` are by group and period, `groups` by group over the whole range. Both add up to `total`
    in every central amount and all hours; bounds do not, since parts of a fleet share their errors.
    `expected_hours` are the board-hours that should have been seen, None
    for a part of the fleet; `models` the board-hours by GPU model; `unit_scores` the finished runs
    whose work is known in tokens.
    """

    start: datetime
    end: datetime
    as_of: datetime | None
    by: GroupBy
    tenant_is: str
    calendar: Calendar
    total: StatementRow
    rows: tuple[StatementRow, ...]
    groups: tuple[StatementRow, ...]
    expected_hours: float | None
    models: Mapping[str, float]
    factors: Factors
    unit_scores: tuple[UnitScore, ...]

    @property
    def told(self) -> tuple[Factor, ...]:
        """Every factor with its range, year and source, those of the models seen included."""
        return (*self.factors.entries, *embodied_factors(self.factors, self.models))

    @property
    def unknown_models(self) -> tuple[str, ...]:
        """The models that were seen and have no known footprint."""
        return tuple(sorted(set(self.models) - set(self.factors.embodied)))

    @property
    def completeness_ratio(self) -> float | None:
        """Share of the board-time that should be known of which energy is, 0..1."""
        total = self.total.board_hours if self.expected_hours is None else self.expected_hours
        return min(1.0, self.total.measured_hours / total) if total else None

    @property
    def unknown(self) -> tuple[str, ...]:
        """Gaps of the statement, and what would close each."""
        notes = []
        if self.completeness_ratio is not None and self.completeness_ratio < WHOLE_RATIO:
            notes.append(
                f"{100 * (1 - self.completeness_ratio):.1f} % of the board-time was not measured: "
                "energy and emissions are those of the rest, so at least what is shown"
            )
        if self.factors.market is None:
            notes.append(
                "market-based emissions: set energy.market_gco2e_per_kwh to your contracts' factor "
                "or the residual mix"
            )
        if self.unknown_models:
            hours = sum(self.models[model] for model in self.unknown_models)
            notes.append(
                f"the making of {', '.join(model or 'no name' for model in self.unknown_models)} "
                f"({hours:,.0f} of {sum(self.models.values()):,.0f} board-hours): state it in "
                "energy.embodied_kgco2e"
            )
        if not self.unit_scores:
            notes.append(
                "emissions per step, sample or token: no run that names its tokens began and "
                "finished in this time (trimtab submit, data.tokens)"
            )
        return tuple(notes)


def covered(text: str, ratio: float | None) -> str:
    """Return a figure's text with the share of the board-time that it covers, when not all."""
    if not text or ratio is None or ratio >= WHOLE_RATIO:
        return text
    return f"{text} of {100 * ratio:.0f} %"


METHOD: tuple[tuple[str, str], ...] = (
    (
        "GPU energy",
        (
            "the boards' energy counters, each board once; without one, power by trapezoid over "
            "gaps of at most five minutes; longer gaps are unknown"
        ),
    ),
    (
        "whose it is",
        (
            "the job that held the device; holders of one device share equally; of a board cut by "
            "MIG idle power by slices, the rest by slices times activity (the range spans both)"
        ),
    ),
    ("site energy", "E_site = E_gpu · PUE"),
    ("location-based", "CO2e = Σ E_site · CI of the grid (GHG Protocol Scope 2)"),
    ("market-based", "CO2e = E_site · factor of contracts or residual mix (GHG Protocol Scope 2)"),
    (
        "embodied",
        "M = footprint of making the GPU · board-hours ÷ life (TE · TS · RS); Scope 3, not added",
    ),
    ("SCI", "(E_site · CI + M) ÷ GPU-hours of work, location-based (ISO/IEC 21031:2024)"),
    (
        "ranges",
        "interval arithmetic: all bounds at once, so wider than likely; parts share their errors",
    ),
)

NOT_INCLUDED = (
    "servers' own power beside their GPUs (GPU telemetry does not measure it)",
    "the making of servers, network and building",
    "offsets (ISO/IEC 21031 does not allow them)",
)
