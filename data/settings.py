"""Every setting, with its default and its meaning; loading them is `data.load_settings`'s work.

A section is a frozen dataclass; `documented` attaches the sentence that docs and `trimtab
settings` print. Ranges are checked here, so that a Settings object is always usable.
"""

from dataclasses import dataclass

from data.fleet_settings import NodeSettings, Pin, PowerSettings, TenantSettings
from data.setting_fields import documented, documented_rows, require
from data.source_settings import (
    FleetSettings,
    KubernetesSettings,
    NvmlSettings,
    PrometheusSettings,
    SlurmSettings,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where facts, plans and decisions are kept."""

    url: str = documented("duckdb:///.trimtab/trimtab.duckdb", "store address, duckdb:///PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long facts are kept, by resolution. The hourly energy is kept for years."""

    raw_days: float = documented(14.0, "samples as collected, d")
    five_minute_days: float = documented(90.0, "5-minute roll-ups, d")
    hourly_days: float = documented(3660.0, "hourly roll-ups: energy of the ESG statement, d")

    def __post_init__(self) -> None:
        for name in ("raw_days", "five_minute_days", "hourly_days"):
            require(getattr(self, name) >= 1, f"retention.{name}", getattr(self, name), "1 d up")
        require(
            self.raw_days <= self.five_minute_days <= self.hourly_days,
            "retention.raw_days",
            self.raw_days,
            "at most five_minute_days, which is at most hourly_days",
        )


FORECASTING_MODELS = ("mix", "prophet", "seasonal-naive")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings:
    """The grid of slots, and the guardrails of recommendations."""

    slot_minutes: int = documented(15, "length of a slot, min; divides 1440")
    horizon_slots: int = documented(96, "slots planned ahead")
    history_days: int = documented(42, "history that forecasts look back on, d")
    model: str = documented("mix", "forecasting model: mix, prophet or seasonal-naive")
    minimum_history_hours: float = documented(
        6.0, "jobs with less known history borrow their forecast, h"
    )
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
    frozen_slots: int = documented(
        2, "first slots in which a new plan keeps what the last one said"
    )
    churn_ratio: float = documented(
        0.02, "saving that a job must bring to leave its announced path, share of a mean job's cost"
    )
    protected_jobs: str = documented(
        "", "jobs that plans leave alone, patterns of ids such as prod/*, comma-separated"
    )
    pins: tuple[Pin, ...] = documented_rows(
        Pin, "jobs planned on exactly this: tables of job, gpu_model, gpu_count, mig_profile"
    )
    workers: int = documented(0, "forecasting threads or processes; 0: one per core")
    series_seconds: float = documented(60.0, "longest time Prophet may take for one series, s")

    def __post_init__(self) -> None:
        require(
            1 <= self.slot_minutes <= 1440 and 1440 % self.slot_minutes == 0,
            "planning.slot_minutes",
            self.slot_minutes,
            "a divisor of 1440 (such as 15 or 60)",
        )
        require(
            1 <= self.horizon_slots <= 2016,
            "planning.horizon_slots",
            self.horizon_slots,
            "1..2016",
        )
        require(
            self.model in FORECASTING_MODELS,
            "planning.model",
            self.model,
            " or ".join(FORECASTING_MODELS),
        )
        require(
            1 <= self.history_days <= 400, "planning.history_days", self.history_days, "1..400 d"
        )
        for name in (
            "minimum_coverage_ratio",
            "headroom_ratio",
            "memory_headroom_ratio",
            "minimum_saving_ratio",
            "idle_utilization_ratio",
            "churn_ratio",
        ):
            require(0 <= getattr(self, name) <= 1, f"planning.{name}", getattr(self, name), "0..1")
        require(
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
            "series_seconds",
        ):
            require(getattr(self, name) > 0, f"planning.{name}", getattr(self, name), "above 0")
        require(self.frozen_slots >= 0, "planning.frozen_slots", self.frozen_slots, "at least 0")
        require(0 <= self.workers <= 256, "planning.workers", self.workers, "0..256")


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """A Ray cluster that takes over forecasting (extra `ray`)."""

    address: str = documented(
        "", "Ray cluster such as auto or ray://head:10001, local for one here; empty: not used"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySettings:
    """What turns board power into site energy, emissions and money."""

    region: str = documented("WORLD", "grid region of the carbon table, such as DEU or USA")
    pue: float = documented(1.54, "power usage effectiveness of the site (Uptime 2025 average)")
    pue_uncertainty: float = documented(0.1, "half-width of the PUE range")
    electricity_price_per_kwh: float = documented(0.20, "electricity price, currency per kWh")
    currency: str = documented("EUR", "currency of all prices")

    def __post_init__(self) -> None:
        require(1 <= self.pue <= 4, "energy.pue", self.pue, "1..4")
        require(
            0 <= self.pue_uncertainty <= 1, "energy.pue_uncertainty", self.pue_uncertainty, "0..1"
        )
        require(
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
        require(1 <= self.port <= 65535, "serve.port", self.port, "1..65535")
        require(self.cycle_minutes > 0, "serve.cycle_minutes", self.cycle_minutes, "above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySettings:
    """How approved recommendations become change files. Nothing here touches a cluster."""

    directory: str = documented(".trimtab/changes", "folder that receives change files")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings in force."""

    store: StoreSettings = StoreSettings()
    # Frozen values: sharing one instance as the default is safe.
    prometheus: PrometheusSettings = PrometheusSettings()  # noqa: RUF009
    slurm: SlurmSettings = SlurmSettings()  # noqa: RUF009
    kubernetes: KubernetesSettings = KubernetesSettings()  # noqa: RUF009
    nvml: NvmlSettings = NvmlSettings()  # noqa: RUF009
    retention: RetentionSettings = RetentionSettings()
    planning: PlanningSettings = PlanningSettings()
    ray: RaySettings = RaySettings()
    energy: EnergySettings = EnergySettings()
    serve: ServeSettings = ServeSettings()
    apply: ApplySettings = ApplySettings()
    fleet: FleetSettings = FleetSettings()  # noqa: RUF009
    nodes: NodeSettings = NodeSettings()  # noqa: RUF009
    power: PowerSettings = PowerSettings()  # noqa: RUF009
    tenants: TenantSettings = TenantSettings()  # noqa: RUF009
