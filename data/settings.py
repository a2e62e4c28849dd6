"""Every setting, with its default and its meaning; loading them is `data.load_settings`'s work.

A section is a frozen dataclass; `documented` attaches the sentence that docs and `trimtab
settings` print. Ranges are checked here, so that a Settings object is always usable.
"""

from dataclasses import dataclass
from datetime import timedelta, timezone, tzinfo

from data.access_settings import AccessSettings, NotifySettings, is_loopback
from data.apply_settings import (
    ApplySettings,
    GitApplySettings,
    KubernetesApplySettings,
    PowerApplySettings,
    SimulatedApplySettings,
    SlurmApplySettings,
)
from data.chat_settings import CHATS, ChatSettings
from data.clock import find_zone
from data.cluster_settings import ClusterSettings
from data.fleet_settings import CatalogueSettings, NodeSettings, Pin, PowerSettings, TenantSettings
from data.grid_settings import GridSettings
from data.report_settings import ReportSettings
from data.serving_settings import ServingSettings
from data.setting_fields import (
    Section,
    documented,
    documented_list,
    documented_path,
    documented_rows,
    number_in,
    numbers_in,
    require,
)
from data.source_settings import SourceSections, real_source_switches
from data.statement_settings import StatementSettings
from data.store_place import StoreSettings
from data.submit_settings import SubmitSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(Section, name="retention"):
    """How long facts are kept, by resolution, and thoughts that a newer cycle replaced.

    The hourly energy is kept for years; what a person decided on is kept for good.
    """

    raw_days: float = documented(14.0, "samples as collected, d", minimum=1, maximum=36_500)
    five_minute_days: float = documented(90.0, "5-minute roll-ups, d", minimum=1, maximum=36_500)
    hourly_days: float = documented(
        3660.0, "hourly roll-ups: energy of the ESG statement, d", minimum=1, maximum=36_500
    )
    forecast_hours: float = documented(
        6.0, "superseded forecasts, some 11 kB a job and cycle, h", minimum=0, maximum=876_000
    )
    plan_hours: float = documented(
        24.0, "superseded plans on which nobody decided, h", minimum=0, maximum=876_000
    )
    undecided_days: float = documented(
        7.0, "recommendations on which nobody decided, d", minimum=0, maximum=36_500
    )

    def _check(self) -> None:
        self.require(
            self.raw_days <= self.five_minute_days <= self.hourly_days,
            "raw_days",
            "at most five_minute_days, which is at most hourly_days",
        )


FORECASTING_MODELS = ("mix", "prophet", "seasonal-naive")
BOARD_SHARING = ("namespace", "all", "none")
GROWTH = ("off", "measured", "assumed")
PARTITIONS = ("whole", "cluster", "pool", "tenant")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings(Section, name="planning"):
    """The grid of slots, and the guardrails of recommendations."""

    slot_minutes: int = documented(15, "slot length, min; divides 1440", minimum=1, maximum=1440)
    horizon_slots: int = documented(96, "slots planned ahead", minimum=1, maximum=2016)
    history_days: int = documented(42, "history forecasts look back on, d", minimum=1, maximum=400)
    max_reading_age_minutes: float = documented(
        60.0, "nothing is proposed from readings older than this, min", above=0, maximum=525_600
    )
    model: str = documented(
        "mix", "forecasting model: mix, prophet or seasonal-naive", choices=FORECASTING_MODELS
    )
    min_history_hours: float = documented(
        6.0, "jobs with less known history borrow their forecast, h", above=0, maximum=9600
    )
    min_coverage_ratio: float = documented(
        0.5,
        "known share of a job's history below which no change is recommended, 0..1",
        minimum=0,
        maximum=1,
    )
    headroom_ratio: float = documented(
        0.15, "kept free above the forecast q90 of demand, share of demand", minimum=0, maximum=1
    )
    memory_headroom_ratio: float = documented(
        0.2, "kept free above the most memory seen or forecast, share of it", minimum=0, maximum=1
    )
    min_saving_ratio: float = documented(
        0.05, "smallest saving worth a change, share of cost", minimum=0, maximum=1
    )
    idle_utilization_ratio: float = documented(
        0.01, "utilization up to which a GPU counts as idle, 0..1", minimum=0, maximum=1
    )
    reclaim_idle_hours: float = documented(
        4.0,
        "idle time before reclaiming is recommended, h; a service needs a week without work too",
        above=0,
        maximum=9600,
    )
    entry_margin_ratio: float = documented(
        0.1,
        "margin by which a change keeps its limits to be proposed, or misses them to be withdrawn",
        minimum=0,
        maximum=1,
    )
    hysteresis_ratio: float = documented(
        2.0, "a change must save this many times what making it costs", minimum=0, maximum=1000
    )
    shortfall_weight: float = documented(
        20.0,
        "price of a missing GPU-hour of work, in prices of a GPU-hour",
        minimum=0,
        maximum=1000,
    )
    power_cap_ratios: str = documented_list(
        "0.8,0.7,0.6", "power caps considered, shares of the board's TDP, comma-separated"
    )
    board_sharing: str = documented(
        "namespace",
        "whose jobs may be proposed to share a board: namespace, all or none",
        choices=BOARD_SHARING,
    )
    shift_slack_hours: float = documented(
        0.0,
        "how long restartable jobs may wait for cheaper or cleaner hours, h; 0: not at all",
        minimum=0,
        maximum=1000,
    )
    grow_elastic_training: str = documented(
        "off", "let elastic training grow by measured speeds, or assumed too", choices=GROWTH
    )
    expiry_hours: float = documented(24.0, "life of a recommendation, h", above=0, maximum=87_600)
    rejected_days: float = documented(
        30.0,
        "how long what was rejected, undone or fell short is not proposed again, d; 0: at once",
        minimum=0,
        maximum=36_500,
    )
    budget_seconds: float = documented(
        10.0, "time the planner may take, s", above=0, maximum=86_400
    )
    frozen_minutes: int = documented(
        30,
        "time in which a new plan keeps what the last one said, in whole slots, min",
        minimum=0,
        maximum=43_200,
    )
    churn_ratio: float = documented(
        0.005,
        "saving that a job must bring to leave its announced path, share of a mean job's cost",
        minimum=0,
        maximum=1,
    )
    max_changes_per_day: int = documented(
        2,
        "changes of configuration that a plan gives one job within any 24 h; 0: as many as pay",
        minimum=0,
        maximum=288,
    )
    protected_jobs: str = documented_list(
        "", "jobs that plans leave alone, patterns of ids such as prod/*, comma-separated"
    )
    pins: tuple[Pin, ...] = documented_rows(
        Pin, "jobs planned on exactly this: tables of job, gpu_model, gpu_count, mig_profile"
    )
    partition_by: str = documented(
        "whole",
        "plan the fleet whole, or by cluster, pool or tenant, on Ray where it has an address",
        choices=PARTITIONS,
    )
    workers: int = documented(
        0, "forecasting threads or processes; 0: one per core", minimum=0, maximum=256
    )
    series_seconds: float = documented(
        60.0, "longest time Prophet may take for one series, s", above=0, maximum=86_400
    )

    def _check(self) -> None:
        divides = 1440 % self.slot_minutes == 0
        self.require(divides, "slot_minutes", "a divisor of 1440 (such as 15 or 60)")
        self.require(
            all(0.5 <= ratio <= 1 for ratio in self.cap_ratios),
            "power_cap_ratios",
            "0.5..1 each (below about half of the TDP a cap can cost energy)",
        )

    @property
    def cap_ratios(self) -> tuple[float, ...]:
        """Return the power caps considered, highest first. Errors: SettingsError."""
        found = numbers_in(self.power_cap_ratios, "planning.power_cap_ratios")
        return tuple(sorted(set(found), reverse=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings(Section, name="ray"):
    """A Ray cluster that takes over forecasts and parts of the plan (extra `ray`)."""

    address: str = documented(
        "", "Ray cluster such as auto or ray://head:10001, local for one here; empty: not used"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySettings(Section, name="energy"):
    """What turns board power into site energy, emissions and money."""

    region: str = documented("WORLD", "grid region of the carbon table, such as DEU or USA")
    pue: float = documented(
        1.54, "power usage effectiveness of the site (Uptime 2025 average)", minimum=1, maximum=4
    )
    pue_uncertainty: float = documented(0.1, "half-width of the PUE range", minimum=0, maximum=1)
    electricity_price_per_kwh: float = documented(
        0.20, "electricity price, currency per kWh", minimum=0, maximum=100
    )
    electricity_price_by_hour: str = documented_list(
        "", "its price in each hour of the day, 24 comma-separated values; empty: always the same"
    )
    carbon_by_hour: str = documented_list(
        "", "grid carbon in each hour of the day, 24 gCO2e/kWh; empty: the region's annual average"
    )
    hours_zone: str = documented(
        "", "IANA zone of these hours, such as Europe/Berlin, summer time too; empty: hour_offset"
    )
    hour_offset: float = documented(
        0.0, "hours that these are ahead of UTC all year", minimum=-14, maximum=14
    )
    forecast_file: str = documented_path(
        "", "CSV or JSON file of carbon and price ahead, as issued; before the hours of the day"
    )
    forecast_max_age_hours: float = documented(
        36.0, "age of its newest issue from which plans do without it, h", above=0, maximum=8760
    )
    carbon_price_per_tonne: float = documented(
        0.0, "price that plans put on a tonne of CO2e, location-based", minimum=0, maximum=10_000
    )
    market_gco2e_per_kwh: float = documented(
        -1.0,
        "market-based factor (contracts, residual mix), gCO2e/kWh; below 0: not known",
        minimum=-1e4,
        maximum=1e4,
    )
    hardware_life_years: float = documented(
        5.0,
        "life over which the footprint of making a GPU is spread, years (±20 %)",
        above=0,
        maximum=50,
    )
    embodied_kgco2e: str = documented_list(
        "", "footprints of making a GPU, kgCO2e, such as L40S-48GB=150; before the catalogue's"
    )
    currency: str = documented("EUR", "currency of all prices")

    def _check(self) -> None:
        self.require(
            self.currency.isalpha() and len(self.currency) <= 8,
            "currency",
            "the letters of a currency, such as EUR or USD",
        )
        self.require(
            all(name and 0 <= value <= 1e6 for name, value in self.stated_footprints.items()),
            "embodied_kgco2e",
            "a list of MODEL=kgCO2e, such as L40S-48GB=150, A30-24GB=110",
        )
        stated = not self.hours_zone or (find_zone(self.hours_zone) and not self.hour_offset)
        zones = "an IANA zone such as Europe/Berlin, without hour_offset beside it, or empty"
        self.require(bool(stated), "hours_zone", zones)
        for name, highest in (("electricity_price_by_hour", 100), ("carbon_by_hour", 1e4)):
            hours = numbers_in(getattr(self, name), f"energy.{name}")
            self.require(
                len(hours) in (0, 24) and all(0 <= hour <= highest for hour in hours),
                name,
                f"24 values of 0 to {highest:g}, from the hour after midnight on, or empty",
            )

    @property
    def zone(self) -> tzinfo:
        """Return the zone of the hours of the day."""
        return find_zone(self.hours_zone) or timezone(timedelta(hours=self.hour_offset))

    @property
    def prices_by_hour(self) -> tuple[float, ...]:
        """Return the electricity price of each hour of the day, 24 values per kWh."""
        found = numbers_in(self.electricity_price_by_hour, "energy.electricity_price_by_hour")
        return found or (self.electricity_price_per_kwh,) * 24

    @property
    def carbon_hours(self) -> tuple[float, ...]:
        """Return the grid carbon of each hour of the day in gCO2e/kWh, () when only a year's is."""
        return numbers_in(self.carbon_by_hour, "energy.carbon_by_hour")

    @property
    def stated_footprints(self) -> dict[str, float]:
        """Return the footprints of making a GPU by model, kgCO2e; NaN for what is no number."""
        pairs = (part.rpartition("=") for part in self.embodied_kgco2e.split(",") if part.strip())
        return {name.strip(): number_in(value) for name, _equals, value in pairs}

    @property
    def market_factor(self) -> float | None:
        """Return the market-based factor in gCO2e/kWh, None when it is not known."""
        return None if self.market_gco2e_per_kwh < 0 else self.market_gco2e_per_kwh


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(Section, name="serve"):
    """The web server and the cycle thread."""

    host: str = documented("127.0.0.1", "address to listen on")
    port: int = documented(8501, "port to listen on", minimum=1, maximum=65_535)
    cycle_minutes: float = documented(
        15.0, "time between two cycles, min", minimum=0.001, maximum=44_640
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(SourceSections):
    """All settings in force; the sections of the sources come first."""

    store: StoreSettings = StoreSettings()  # noqa: RUF009
    retention: RetentionSettings = RetentionSettings()
    planning: PlanningSettings = PlanningSettings()
    ray: RaySettings = RaySettings()
    energy: EnergySettings = EnergySettings()
    grid: GridSettings = GridSettings()  # noqa: RUF009
    serve: ServeSettings = ServeSettings()
    # Frozen values: sharing one instance as the default is safe.
    access: AccessSettings = AccessSettings()  # noqa: RUF009
    notify: NotifySettings = NotifySettings()  # noqa: RUF009
    chat: ChatSettings = ChatSettings()  # noqa: RUF009
    apply: ApplySettings = ApplySettings()  # noqa: RUF009
    apply_kubernetes: KubernetesApplySettings = KubernetesApplySettings()  # noqa: RUF009
    apply_git: GitApplySettings = GitApplySettings()  # noqa: RUF009
    apply_slurm: SlurmApplySettings = SlurmApplySettings()  # noqa: RUF009
    apply_power: PowerApplySettings = PowerApplySettings()  # noqa: RUF009
    report: ReportSettings = ReportSettings()  # noqa: RUF009
    submit: SubmitSettings = SubmitSettings()  # noqa: RUF009
    # After the sections that it is checked against: sections are loaded in this order.
    apply_simulated: SimulatedApplySettings = SimulatedApplySettings()  # noqa: RUF009
    nodes: NodeSettings = NodeSettings()  # noqa: RUF009
    power: PowerSettings = PowerSettings()  # noqa: RUF009
    tenants: TenantSettings = TenantSettings()  # noqa: RUF009
    statement: StatementSettings = StatementSettings()  # noqa: RUF009
    serving: ServingSettings = ServingSettings()  # noqa: RUF009
    clusters: ClusterSettings = ClusterSettings()  # noqa: RUF009
    catalogue: CatalogueSettings = CatalogueSettings()  # noqa: RUF009

    def __post_init__(self) -> None:
        known = self.access.mode != "local" or is_loopback(self.serve.host)
        for name, on in (("apply", self.apply.enabled), ("submit", self.submit.enabled)):
            require(
                known or not on,
                f"{name}.enabled",
                True,
                f"off while access.mode is local and serve.host is {self.serve.host!r}: set "
                "access.mode to proxy or oidc, or serve.host to 127.0.0.1",
            )
        for chat, name in zip(CHATS, ("slack_signing_secret", "teams_security_token"), strict=True):
            require(
                self.access.mode != "local" or not self.chat.takes(chat),
                f"chat.{name}",
                "***",
                "empty while access.mode is local, where everybody is the admin: set it to proxy "
                "or oidc",
            )
        if self.apply_simulated.enabled:
            _require_only_simulated(self)


def _require_only_simulated(settings: Settings) -> None:
    """Refuse (SettingsError) a simulated cluster that could be taken for a real one."""
    name = "apply_simulated.enabled"
    fleet = settings.simulated_fleet
    require(fleet.enabled, name, True, "off while simulated_fleet.enabled is")
    require(bool(fleet.state_file), name, True, "off without simulated_fleet.state_file")
    used = settings.sources_in_use()
    real = {switch: name in used for name, switch in real_source_switches().items()} | {
        "apply_kubernetes.enabled": settings.apply_kubernetes.enabled,
        "apply_git.enabled": settings.apply_git.enabled,
        "apply_slurm.enabled": settings.apply_slurm.enabled,
        "apply_power.enabled": settings.apply_power.enabled,
    }
    beside = [setting for setting, used in real.items() if used]
    require(not beside, name, True, f"off beside real sources and targets ({', '.join(beside)})")
