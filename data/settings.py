"""Every setting, with its default and its meaning; loading them is `data.load_settings`'s work.

A section is a frozen dataclass; `documented` attaches the sentence that docs and `trimtab
settings` print. Ranges are checked here, so that a Settings object is always usable.
"""

from dataclasses import dataclass, field
from typing import Any

from data.errors import SettingsError


def documented(default: Any, meaning: str, *, secret: bool = False) -> Any:
    """Declare a setting: its default, what it means with its unit, and whether to redact it."""
    return field(default=default, metadata={"meaning": meaning, "secret": secret})


def _require(condition: bool, name: str, value: object, rule: str) -> None:
    if not condition:
        raise SettingsError(f"{name} is {value!r}", f"It must be {rule}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where facts, plans and decisions are kept."""

    url: str = documented("duckdb:///.trimtab/trimtab.duckdb", "store address, duckdb:///PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """The Prometheus that scrapes dcgm-exporter."""

    url: str = documented("", "base address such as http://prometheus:9090; empty: not used")
    bearer_token: str = documented("", "token sent as Authorization: Bearer", secret=True)
    timeout_seconds: float = documented(30.0, "total time for one request, s")
    step_seconds: int = documented(60, "resolution asked for, s")
    lookback_hours: float = documented(24.0, "how far the first collection reaches back, h")
    selector: str = documented("", 'extra label matchers such as cluster="a", inside the braces')

    def __post_init__(self) -> None:
        _require(
            not self.url or self.url.startswith(("http://", "https://")),
            "prometheus.url",
            self.url,
            "an http:// or https:// address",
        )
        _require(
            0 < self.timeout_seconds <= 600,
            "prometheus.timeout_seconds",
            self.timeout_seconds,
            "above 0 and at most 600 s",
        )
        _require(
            1 <= self.step_seconds <= 3600,
            "prometheus.step_seconds",
            self.step_seconds,
            "1..3600 s",
        )
        _require(
            0 < self.lookback_hours <= 24 * 400,
            "prometheus.lookback_hours",
            self.lookback_hours,
            "above 0 and at most 9600 h",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings:
    """The grid of slots, and the guardrails of recommendations."""

    slot_minutes: int = documented(15, "length of a slot, min; divides 1440")
    horizon_slots: int = documented(96, "slots planned ahead")
    history_days: int = documented(14, "history that forecasts look back on, d")
    minimum_history_hours: float = documented(6.0, "jobs with less known history are skipped, h")
    minimum_coverage_ratio: float = documented(
        0.5, "known share of a job's history below which no change is recommended, 0..1"
    )
    headroom_ratio: float = documented(
        0.15, "kept free above the forecast q90 of demand, share of demand"
    )
    memory_headroom_ratio: float = documented(
        0.2, "kept free above the largest memory seen or forecast, share of memory"
    )
    minimum_saving_ratio: float = documented(
        0.05, "smallest saving worth a change, share of the job's cost"
    )
    idle_utilization_ratio: float = documented(
        0.01, "utilization up to which a GPU counts as idle, 0..1"
    )
    reclaim_idle_hours: float = documented(4.0, "idle time before reclaiming is recommended, h")
    power_cap_ratio: float = documented(0.7, "power cap considered, share of the board's TDP")
    expiry_hours: float = documented(24.0, "life of a recommendation, h")
    budget_seconds: float = documented(10.0, "time the planner may take, s")
    workers: int = documented(0, "forecasting processes; 0: one per core")

    def __post_init__(self) -> None:
        _require(
            1 <= self.slot_minutes <= 1440 and 1440 % self.slot_minutes == 0,
            "planning.slot_minutes",
            self.slot_minutes,
            "a divisor of 1440 (such as 15 or 60)",
        )
        _require(
            1 <= self.horizon_slots <= 2016,
            "planning.horizon_slots",
            self.horizon_slots,
            "1..2016",
        )
        _require(
            1 <= self.history_days <= 400, "planning.history_days", self.history_days, "1..400 d"
        )
        for name in (
            "minimum_coverage_ratio",
            "headroom_ratio",
            "memory_headroom_ratio",
            "minimum_saving_ratio",
            "idle_utilization_ratio",
        ):
            _require(0 <= getattr(self, name) <= 1, f"planning.{name}", getattr(self, name), "0..1")
        _require(
            0.5 <= self.power_cap_ratio <= 1,
            "planning.power_cap_ratio",
            self.power_cap_ratio,
            "0.5..1 (below about half of the TDP a cap can cost energy)",
        )
        for name in (
            "minimum_history_hours",
            "reclaim_idle_hours",
            "expiry_hours",
            "budget_seconds",
        ):
            _require(getattr(self, name) > 0, f"planning.{name}", getattr(self, name), "above 0")
        _require(0 <= self.workers <= 256, "planning.workers", self.workers, "0..256")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySettings:
    """What turns board power into site energy, emissions and money."""

    region: str = documented("WORLD", "grid region of the carbon table, such as DEU or USA")
    pue: float = documented(1.54, "power usage effectiveness of the site (Uptime 2025 average)")
    pue_uncertainty: float = documented(0.1, "half-width of the PUE range")
    electricity_price_per_kwh: float = documented(0.20, "electricity price, currency per kWh")
    currency: str = documented("EUR", "currency of all prices")

    def __post_init__(self) -> None:
        _require(1 <= self.pue <= 4, "energy.pue", self.pue, "1..4")
        _require(
            0 <= self.pue_uncertainty <= 1, "energy.pue_uncertainty", self.pue_uncertainty, "0..1"
        )
        _require(
            0 <= self.electricity_price_per_kwh <= 100,
            "energy.electricity_price_per_kwh",
            self.electricity_price_per_kwh,
            "0..100",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The web server and the cycle thread."""

    host: str = documented("127.0.0.1", "address to listen on")
    port: int = documented(8501, "port to listen on")
    cycle_minutes: float = documented(15.0, "time between two cycles, min")

    def __post_init__(self) -> None:
        _require(1 <= self.port <= 65535, "serve.port", self.port, "1..65535")
        _require(self.cycle_minutes > 0, "serve.cycle_minutes", self.cycle_minutes, "above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySettings:
    """How approved recommendations become change files. Nothing here touches a cluster."""

    directory: str = documented(".trimtab/changes", "folder that receives change files")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """The simulated fleet as a source, for demo, tests and load."""

    enabled: bool = documented(False, "collect from the simulated fleet in this process")
    seed: int = documented(7, "seed of the fleet; same seed, same fleet")
    nodes: int = documented(8, "number of nodes")

    def __post_init__(self) -> None:
        _require(1 <= self.nodes <= 20_000, "fleet.nodes", self.nodes, "1..20000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings in force."""

    store: StoreSettings = StoreSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    planning: PlanningSettings = PlanningSettings()
    energy: EnergySettings = EnergySettings()
    serve: ServeSettings = ServeSettings()
    apply: ApplySettings = ApplySettings()
    fleet: FleetSettings = FleetSettings()
