"""Allocations of the simulated fleet's jobs over time, and the effect of fewer GPUs on them.

Without changes a tenant holds its devices for good. A change gives it other devices, a power cap or
nothing, from one second on: until its run ends when it trains, for good otherwise. Work is
conserved. A service does the same work on fewer, smaller or capped GPUs at a higher utilization, up
to what they can do. A training run goes on at the utilization it had, and takes longer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collectors.simulated.layout import POWER_WATTS, SimulatedDevice, Tenant, slices_of
from collectors.simulated.signals import Times, Values, board_power
from data.catalogue.gpu_catalogue import GpuModel, load_gpu_catalogue
from data.facts.jobs import Platform, WorkloadKind

BUSIEST = 0.98
"""Utilization that a service reaches when its GPUs are too small for it."""
_DISTANT_SECONDS = 10**11
"""Seconds: earlier and later than any sample."""
_SUBMITTED_LEVEL = 0.8
"""Utilization of a submitted job at work; assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The allocation of a tenant in [since, until), times in s since the epoch.

    `places` are the keys of devices: a board's UUID, or UUID/instance. None: the job has ended.
    """

    tenant: int
    since: int
    until: int = _DISTANT_SECONDS
    places: tuple[str, ...]
    cap_watts: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """A training job that somebody submitted, on whole boards in [since, until), s since the epoch.

    `memory_ratio` is the share of a board's memory that it needs; `mark` tells it from others.
    """

    name: str
    team: str
    places: tuple[str, ...]
    since: int
    until: int
    memory_ratio: float
    mark: str

    def tenant(self, number: int, devices: Sequence[SimulatedDevice]) -> Tenant:
        """Return the job as a tenant that runs once."""
        return Tenant(
            number=number,
            name=self.name,
            team=self.team,
            platform=Platform.KUBERNETES,
            kind=WorkloadKind.TRAINING,
            devices=tuple(devices),
            level=_SUBMITTED_LEVEL,
            memory_ratio=self.memory_ratio,
            period_seconds=_DISTANT_SECONDS,
            run_seconds=self.until - self.since,
            offset_seconds=-self.since,
            once=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a holding on work: utilization times `load`, time runs `pace` as fast.

    `slowness` is the part of the load that comes from slower clocks and draws no power.
    """

    load: float = 1.0
    pace: float = 1.0
    slowness: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantClock:
    """The time by which a tenant's runs go: slower than the clock where it works slower."""

    clock: Values
    work: Values

    def at(self, times: Times) -> Times:
        """Return the own time at each time, in whole s."""
        return np.asarray(np.floor(np.interp(times, self.clock, self.work)), dtype=np.int64)

    def when(self, work_seconds: float) -> int:
        """Return the first whole second of the clock at which the own time has come."""
        return int(np.ceil(np.interp(work_seconds, self.work, self.clock)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A period [since, until) without any change of an allocation.

    `boards` maps a board's number to its devices, `holder` a device's key to its tenant, the
    holding and its effect.
    """

    since: int
    until: int
    boards: dict[int, list[SimulatedDevice]]
    holder: dict[str, tuple[Tenant, Holding, Effect]]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The holders of all devices by time: the layout, and the changes in their order."""

    devices: tuple[SimulatedDevice, ...]
    tenants: tuple[Tenant, ...]
    changes: tuple[Holding, ...] = ()
    epochs: tuple[Epoch, ...] = field(init=False, repr=False)
    _device: dict[str, SimulatedDevice] = field(init=False, repr=False)
    _holdings: dict[int, tuple[Holding, ...]] = field(init=False, repr=False)
    _own_times: dict[int, TenantClock] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        cut = {device.gpu_uuid for device in self.devices if device.mig_instance}
        parts = (
            part
            for device in self.devices
            if device.gpu_uuid not in cut
            for part in slices_of(device)
        )
        object.__setattr__(
            self, "_device", {device.key: device for device in (*self.devices, *parts)}
        )
        object.__setattr__(
            self,
            "_holdings",
            {tenant.number: _folded(tenant, self.changes) for tenant in self.tenants},
        )
        object.__setattr__(
            self,
            "_own_times",
            {
                number: clock
                for number in {change.tenant for change in self.changes}
                if (clock := self._own_time(self.tenants[number])) is not None
            },
        )
        object.__setattr__(self, "epochs", tuple(self._epochs()))

    def device(self, key: str) -> SimulatedDevice:
        """Return a device by its key, instances of boards that could be cut included."""
        return self._device[key]

    def holdings(self, tenant: Tenant) -> tuple[Holding, ...]:
        """Return the tenant's holdings, one after the other."""
        return self._holdings[tenant.number]

    def holding_at(self, tenant: Tenant, at: int) -> Holding:
        """Return the tenant's holding at `at`."""
        return next(
            holding for holding in self.holdings(tenant) if holding.since <= at < holding.until
        )

    def own_time(self, tenant: Tenant) -> TenantClock | None:
        """Return the time by which the tenant's runs go, None when it is the clock's."""
        return self._own_times.get(tenant.number)

    def parts(self, times: Times) -> Iterator[tuple[Epoch, npt.NDArray[np.bool_]]]:
        """Yield every epoch that some of the times fall into, with which ones do."""
        for epoch in self.epochs:
            inside = (times >= epoch.since) & (times < epoch.until)
            if inside.any():
                yield epoch, inside

    def effect(self, tenant: Tenant, holding: Holding) -> Effect:
        """Return the effect of the holding on the tenant's work."""
        if not holding.places:
            return Effect()
        now = [self.device(key) for key in holding.places]
        capacity = _capacity(now) / _capacity(tenant.devices)
        slowdown = _slowdown(tenant, now[0], holding.cap_watts, capacity)
        if tenant.kind is WorkloadKind.TRAINING:
            return Effect(pace=capacity / slowdown)
        return Effect(load=slowdown / capacity, slowness=slowdown)

    def _own_time(self, tenant: Tenant) -> TenantClock | None:
        paces = [
            (holding.since, self.effect(tenant, holding).pace) for holding in self.holdings(tenant)
        ]
        if all(pace == 1 for _since, pace in paces):
            return None
        clock = np.array([since for since, _pace in paces] + [_DISTANT_SECONDS], dtype=np.float64)
        steps = np.diff(clock) * np.array([pace for _since, pace in paces])
        seconds = np.concatenate([[clock[0]], clock[0] + np.cumsum(steps)])
        return TenantClock(clock=clock, work=seconds)

    def _epochs(self) -> Iterator[Epoch]:
        times = {holding.since for group in self._holdings.values() for holding in group} | {
            _DISTANT_SECONDS
        }
        for since, until in pairwise(sorted(times)):
            holder = {
                key: (tenant, holding, self.effect(tenant, holding))
                for tenant in self.tenants
                for holding in (self.holding_at(tenant, since),)
                for key in holding.places
            }
            yield Epoch(since=since, until=until, boards=self._boards(holder), holder=holder)

    def _boards(self, keys: Iterable[str]) -> dict[int, list[SimulatedDevice]]:
        """Return the devices by board: a board of which an instance is held is cut."""
        cut = {key.partition("/")[0] for key in keys if "/" in key}
        boards: dict[int, list[SimulatedDevice]] = {}
        for device in self.devices:
            is_board = not device.mig_instance
            parts = slices_of(device) if is_board and device.gpu_uuid in cut else [device]
            boards.setdefault(device.board, []).extend(parts)
        return boards


def _folded(tenant: Tenant, changes: Iterable[Holding]) -> tuple[Holding, ...]:
    """Return the periods of one tenant: a later change replaces all that follows it."""
    places = () if tenant.once else tuple(device.key for device in tenant.devices)
    settled = [Holding(tenant=tenant.number, since=-_DISTANT_SECONDS, places=places)]
    for change in changes:
        if change.tenant != tenant.number:
            continue
        settled = [
            Holding(
                tenant=holding.tenant,
                since=holding.since,
                until=min(holding.until, change.since),
                places=holding.places,
                cap_watts=holding.cap_watts,
            )
            for holding in settled
            if holding.since < change.since
        ]
        settled.append(change)
        if change.until < _DISTANT_SECONDS:
            settled.append(Holding(tenant=tenant.number, since=change.until, places=places))
    return tuple(settled)


def _model(device: SimulatedDevice) -> GpuModel:
    return load_gpu_catalogue().get(device.gpu_model)


def _capacity(devices: Sequence[SimulatedDevice]) -> float:
    """Return the capacity of devices, relative to one L40S."""
    return sum(_model(device).relative_speed * device.fraction for device in devices)


def _slowdown(
    tenant: Tenant, device: SimulatedDevice, cap_watts: float | None, capacity: float
) -> float:
    """Return the factor by which a tenant's work takes longer under the cap, at its usual level."""
    if cap_watts is None:
        return 1.0
    training = tenant.kind is WorkloadKind.TRAINING
    level = min(BUSIEST, tenant.level if training else tenant.level / capacity)
    demand = board_power(np.array([level * device.fraction]), *POWER_WATTS[device.gpu_model])
    ratio = float((capped_power(demand, device, cap_watts) / demand)[0])
    law = _model(device).cap_law
    return float(np.interp(ratio, law.power_ratios, law.slowdown))


def capped_power(watts: Values, device: SimulatedDevice, cap_watts: float | None) -> Values:
    """Return board power in W under a cap, by the law of the catalogue; None is no cap."""
    if cap_watts is None:
        return watts
    law = _model(device).cap_law
    ratio = watts / (law.reach * cap_watts)
    return np.asarray(watts * (1 + ratio**law.sharpness) ** (-1 / law.sharpness))
