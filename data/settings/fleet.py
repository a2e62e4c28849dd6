"""Settings of the fleet: GPU models, nodes, maintenance, power limits, tenants, pins.

Rows (`[[power.domains]]` in the settings file) are frozen dataclasses of their own.
"""

from dataclasses import dataclass
from datetime import datetime

from data.settings.fields import Section, documented, documented_rows, fixed, require, require_once

BORROW_PRICE, GUARANTEE_PRICE = 0.05, 20.0
"""Per board and hour, of a borrowed one and of one that a guarantee lacks: the first breaks ties
for the owner of a quota, the second is dearer than any board."""
TENANT_KEYS = ("account-or-namespace", "namespace", "account", "owner", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """Nodes whose name fits the pattern `nodes` are away in [start, end), times in UTC."""

    nodes: str
    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            at = getattr(self, name)
            zone = at.utcoffset()
            valid = zone is not None and not zone
            # Further away, counting days from it leaves the calendar.
            valid = valid and 1970 <= at.year <= 2200
            require(valid, f"nodes.maintenance {name}", at, "a UTC time: 2026-01-02T00:00:00Z")
        require(self.end > self.start, "nodes.maintenance end", self.end, "after its start")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDomain:
    """A rack or the site: what feeds the nodes whose name fits the pattern `nodes`.

    At most `limit_kw`; from `from_hour` to `until_hour` UTC (0..24, past midnight too) at most
    `reduced_kw`: demand response. Equal hours: no reduction.
    """

    name: str
    nodes: str = "*"
    limit_kw: float
    reduced_kw: float = 0.0
    from_hour: float = 0.0
    until_hour: float = 0.0

    def __post_init__(self) -> None:
        require(0 < self.limit_kw <= 1e7, "power.domains limit_kw", self.limit_kw, "0..1e7 kW")
        require(
            0 <= self.reduced_kw <= self.limit_kw,
            "power.domains reduced_kw",
            self.reduced_kw,
            "0 to limit_kw",
        )
        for name in ("from_hour", "until_hour"):
            value = getattr(self, name)
            require(0 <= value <= 24, f"power.domains {name}", value, "0..24")

    def limit_at(self, at: datetime) -> float:
        """Return the limit in kW at a time."""
        hour = at.hour + at.minute / 60
        begin, end = self.from_hour, self.until_hour
        inside = begin <= hour < end if begin <= end else hour >= begin or hour < end
        return self.reduced_kw if inside and begin != end else self.limit_kw


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantShare:
    """The share of a tenant (`name` may be a pattern), in boards.

    `quota` 0: its fair share by `weight` of what the others leave. Up to `guaranteed` it comes
    first; up to `borrowable` above the quota it may borrow.
    """

    name: str
    weight: float = 1.0
    quota: float = 0.0
    guaranteed: float = 0.0
    borrowable: float = 0.0

    def __post_init__(self) -> None:
        for name in ("weight", "quota", "guaranteed", "borrowable"):
            value = getattr(self, name)
            require(0 <= value <= 1e6, f"tenants.shares {name}", value, "0 to 1,000,000")
        require(
            self.quota == 0 or self.guaranteed <= self.quota,
            f"tenants.shares guaranteed of {self.name}",
            self.guaranteed,
            f"at most its quota of {self.quota:g}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """Jobs whose id fits the pattern `job` are planned on exactly this."""

    job: str
    gpu_model: str
    gpu_count: int
    mig_profile: str = ""

    def __post_init__(self) -> None:
        value = self.gpu_count
        require(0 <= value <= 65_536, "planning.pins gpu_count", value, "0..65536")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(Section, name="nodes"):
    """Nodes beside their GPUs: what they draw, what switching them costs, when they are away.

    The base power of 1 kW for eight GPUs is what an empty server of the Acme trace draws (1,512 W
    at its 10th percentile) less eight idle boards.
    """

    base_watts_per_gpu: float = documented(
        125.0,
        "power of a node that is on, without its GPUs, W per GPU it holds",
        minimum=0,
        maximum=1e5,
    )
    boot_minutes: float = documented(
        10.0,
        "time that a node draws power before it works again after a power-down, min",
        minimum=0,
        maximum=10_080,
    )
    # The shortest time for which powering an empty node down is planned.
    min_off_minutes: float = fixed(60.0)
    maintenance: tuple[Maintenance, ...] = documented_rows(
        Maintenance, "times at which nodes are away: tables of nodes, start, end"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSettings(Section, name="power"):
    """Limits of racks and of the site."""

    over_limit_penalty_per_kwh: float = documented(
        50.0,
        "price of a kWh above a limit that cannot be kept; 0: no plan may exceed it",
        minimum=0,
        maximum=1e6,
    )
    host_ratio: float = documented(
        0.0,
        "power of a host without its GPUs, as a share of theirs; counted in heat",
        minimum=0,
        maximum=10,
    )
    domains: tuple[PowerDomain, ...] = documented_rows(
        PowerDomain,
        "limits: tables of name, nodes, limit_kw and, for some hours, reduced_kw, from_hour, "
        "until_hour",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings(Section, name="tenants"):
    """Tenants of the fleet, and their shares of it."""

    by: str = documented(
        "account-or-namespace",
        "what a tenant is; account-or-namespace: the account in Slurm's accounting, else the "
        "namespace (or partition)",
        choices=TENANT_KEYS,
    )
    over_quota_penalty: float = documented(
        50.0,
        "price of a board above quota and borrowable, per hour; 0: no plan may exceed it",
        minimum=0,
        maximum=1e6,
    )
    shares: tuple[TenantShare, ...] = documented_rows(
        TenantShare, "tenants: tables of name, weight, quota, guaranteed, borrowable"
    )

    def _check(self) -> None:
        self.require(
            self.over_quota_penalty == 0 or self.over_quota_penalty >= BORROW_PRICE,
            "over_quota_penalty",
            f"at least {BORROW_PRICE:g}, the price of a borrowed board, or 0",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedGpuModel:
    """A GPU model as a site states it: what differs from the model that it is `like`.

    `like` empty: the row corrects the model of its own name. `reported` are the names that NVML,
    DCGM or gpu-feature-discovery write, comma-separated. A figure of 0 is that of `like`.
    """

    name: str
    like: str = ""
    reported: str = ""
    memory_mib: int = 0
    tdp_watts: float = 0.0
    idle_watts: float = 0.0
    relative_speed: float = 0.0
    price_per_hour: float = 0.0

    def __post_init__(self) -> None:
        plain = bool(self.name.strip()) and "," not in self.name and len(self.name) <= 80
        require(plain, "catalogue.gpu_models name", self.name, "a name without comma")
        for figure, limit in (
            ("memory_mib", 1e8),
            ("tdp_watts", 1e5),
            ("idle_watts", 1e5),
            ("relative_speed", 1e3),
            ("price_per_hour", 1e6),
        ):
            value, rule = getattr(self, figure), f"0 to {limit:,.0f}; 0: that of the model alike"
            name = f"catalogue.gpu_models {figure} of {self.name}"
            require(0 <= value <= limit, name, value, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueSettings(Section, name="catalogue"):
    """GPU models beside those that ship with Trimtab."""

    gpu_models: tuple[StatedGpuModel, ...] = documented_rows(
        StatedGpuModel,
        "GPU models that the catalogue lacks, or has wrong: tables of name, like (a model of the "
        "catalogue, whose figures hold where none is stated), reported (names that NVML or DCGM "
        "write, comma-separated), memory_mib, tdp_watts, idle_watts, relative_speed, "
        "price_per_hour",
    )

    def _check(self) -> None:
        require_once([model.name for model in self.gpu_models], "catalogue.gpu_models name")
