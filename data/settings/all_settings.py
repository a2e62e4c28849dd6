"""Every setting, with its default and its meaning; loading them is `data.settings.load`'s work.

A section is a frozen dataclass; `documented` attaches the sentence that docs and `trimtab
settings` print. Ranges are checked here, so that a Settings object is always usable.
"""

from dataclasses import dataclass

from data.settings.access import AccessSettings, NotifySettings, is_loopback
from data.settings.apply import (
    ApplySettings,
    GitApplySettings,
    KubernetesApplySettings,
    PowerApplySettings,
    SlurmApplySettings,
)
from data.settings.energy import EnergySettings, GridSettings
from data.settings.fields import (
    Section,
    documented,
    documented_list,
    documented_rows,
    fixed,
    numbers_in,
    require,
)
from data.settings.fleet import CatalogueSettings, NodeSettings, Pin, PowerSettings, TenantSettings
from data.settings.reports import ReportSettings
from data.settings.serving import ServingSettings
from data.settings.sources import ClusterSettings, SourceSections, real_source_switches
from data.settings.statements import StatementSettings
from data.settings.store import StoreSettings
from data.settings.submission import SubmitSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(Section, name="retention"):
    """Retention of facts, by resolution; what a person decided on is kept for good."""

    raw_days: float = documented(14.0, "samples as collected, d", minimum=1, maximum=36_500)
    five_minute_days: float = documented(90.0, "5-minute roll-ups, d", minimum=1, maximum=36_500)
    hourly_days: float = documented(
        3660.0, "hourly roll-ups: energy of the ESG statement, d", minimum=1, maximum=36_500
    )

    def _check(self) -> None:
        self.require(
            self.raw_days <= self.five_minute_days <= self.hourly_days,
            "raw_days",
            "at most five_minute_days, which is at most hourly_days",
        )


FORECASTING_MODELS = ("mix", "prophet", "seasonal-naive")
BOARD_SHARING = ("namespace", "all", "none")
PARTITIONS = ("whole", "cluster", "pool", "tenant")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings(Section, name="planning"):
    """The grid of slots, and the guardrails of recommendations."""

    slot_minutes: int = documented(15, "slot length, min; divides 1440", minimum=1, maximum=1440)
    horizon_slots: int = documented(96, "slots planned ahead", minimum=1, maximum=2016)
    history_days: int = documented(42, "history forecasts look back on, d", minimum=1, maximum=400)
    model: str = documented("mix", "forecasting model", choices=FORECASTING_MODELS)
    headroom_ratio: float = documented(
        0.15, "kept free above the forecast q90 of demand, share of demand", minimum=0, maximum=1
    )
    memory_headroom_ratio: float = documented(
        0.2, "kept free above the most memory seen or forecast, share of it", minimum=0, maximum=1
    )
    min_saving_ratio: float = documented(
        0.05, "smallest saving worth a change, share of cost", minimum=0, maximum=1
    )
    reclaim_idle_hours: float = documented(
        4.0,
        "idle time before reclaiming is recommended, h; a service needs a week without work too",
        above=0,
        maximum=9600,
    )
    # Of a job's work to return within the horizon, above which it is not stopped.
    max_return_chance: float = fixed(0.1)
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
        "whose jobs may be proposed to share a board",
        choices=BOARD_SHARING,
    )
    shift_slack_hours: float = documented(
        0.0,
        "how long restartable jobs may wait for cheaper or cleaner hours, h; 0: not at all",
        minimum=0,
        maximum=1000,
    )
    budget_seconds: float = documented(
        10.0, "time the planner may take, s", above=0, maximum=86_400
    )
    churn_ratio: float = documented(
        0.005,
        "least saving for which a job leaves its announced path, share of a mean job's cost",
        minimum=0,
        maximum=1,
    )
    max_changes_per_day: int = documented(
        2,
        "most changes that a plan gives one job within any 24 h; 0: as many as pay",
        minimum=0,
        maximum=288,
    )
    protected_jobs: str = documented_list(
        "", "jobs that plans leave alone, patterns of ids such as prod/*, comma-separated"
    )
    checkpointed_jobs: str = documented_list(
        "",
        "jobs that write checkpoints, patterns of ids, namespaces or partitions, "
        "comma-separated; others lose their whole run when it ends",
    )
    pins: tuple[Pin, ...] = documented_rows(
        Pin, "jobs planned on exactly this: tables of job, gpu_model, gpu_count, mig_profile"
    )
    partition_by: str = documented(
        "whole",
        "plan the fleet whole or in parts, on Ray where it has an address",
        choices=PARTITIONS,
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
        ratios = numbers_in(self.power_cap_ratios, "planning.power_cap_ratios")
        return tuple(sorted(set(ratios), reverse=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings(Section, name="ray"):
    """A Ray cluster that takes over forecasts and parts of the plan (extra `ray`)."""

    address: str = documented(
        "", "Ray cluster such as auto or ray://head:10001, local for one here; empty: not used"
    )


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
    energy: EnergySettings = EnergySettings()  # noqa: RUF009
    grid: GridSettings = GridSettings()  # noqa: RUF009
    # Frozen values: sharing one instance as the default is safe.
    access: AccessSettings = AccessSettings()  # noqa: RUF009
    serve: ServeSettings = ServeSettings()
    notify: NotifySettings = NotifySettings()  # noqa: RUF009
    apply: ApplySettings = ApplySettings()  # noqa: RUF009
    apply_kubernetes: KubernetesApplySettings = KubernetesApplySettings()  # noqa: RUF009
    apply_git: GitApplySettings = GitApplySettings()  # noqa: RUF009
    apply_slurm: SlurmApplySettings = SlurmApplySettings()  # noqa: RUF009
    apply_power: PowerApplySettings = PowerApplySettings()  # noqa: RUF009
    report: ReportSettings = ReportSettings()  # noqa: RUF009
    submit: SubmitSettings = SubmitSettings()  # noqa: RUF009
    nodes: NodeSettings = NodeSettings()  # noqa: RUF009
    power: PowerSettings = PowerSettings()  # noqa: RUF009
    tenants: TenantSettings = TenantSettings()  # noqa: RUF009
    statement: StatementSettings = StatementSettings()  # noqa: RUF009
    serving: ServingSettings = ServingSettings()  # noqa: RUF009
    clusters: ClusterSettings = ClusterSettings()  # noqa: RUF009
    catalogue: CatalogueSettings = CatalogueSettings()  # noqa: RUF009

    def __post_init__(self) -> None:
        require(
            is_loopback(self.serve.host) or (self.access.mode != "local" and self.serve.host != ""),
            "serve.host",
            self.serve.host,
            "127.0.0.1 or ::1 while access.mode is local; elsewhere set access.mode to open "
            "(everybody who reaches it looks, nobody decides), proxy or oidc",
        )
        for name, on in (("apply", self.apply.enabled), ("submit", self.submit.enabled)):
            require(
                self.access.mode != "open" or not on,
                f"{name}.enabled",
                True,
                "off while access.mode is open: set it to proxy or oidc, or to local on 127.0.0.1",
            )
        if self.changes_simulation:
            _require_only_simulated(self)

    @property
    def changes_simulation(self) -> bool:
        """Whether changes may go to the simulated cluster: its file is the second switch."""
        return self.apply.enabled and bool(self.simulated_fleet.state_file)


def _require_only_simulated(settings: Settings) -> None:
    """Refuse (SettingsError) a simulated cluster that could be taken for a real one."""
    name, file = "simulated_fleet.state_file", settings.simulated_fleet.state_file
    require(
        settings.simulated_fleet.enabled, name, file, "empty while simulated_fleet.enabled is off"
    )
    used = settings.sources_in_use()
    real = {switch: name in used for name, switch in real_source_switches().items()} | {
        "apply_kubernetes.enabled": settings.apply_kubernetes.enabled,
        "apply_git.enabled": settings.apply_git.enabled,
        "apply_slurm.enabled": settings.apply_slurm.enabled,
        "apply_power.enabled": settings.apply_power.enabled,
    }
    others = [setting for setting, used in real.items() if used]
    rule = f"empty beside real sources and targets ({', '.join(others)}) where apply.enabled is on"
    require(not others, name, file, rule)
