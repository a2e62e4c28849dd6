"""Readings of a tenant's devices at given times: a pure function of seed, device and time.

Shapes follow what is known of real fleets: training ramps up, holds a level, dips at epoch
boundaries for evaluation and checkpoints, and tails off; inference follows day and week; noise is
hashed from (device, time), so that any window gives the same reading at the same instant.

Levels are set so that the A100 boards of a large fleet come near the quantile curves that
InternLM/AcmeTrace published for its Seren cluster (CC BY 4.0):
"""

import numpy as np
import numpy.typing as npt

from collectors.simulated.layout import Tenant
from data.facts.jobs import WorkloadKind

Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


_DAY = 86_400
_WARM_UP = 600
_DIP = 360
_LONG_DIP = 900
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def hashed_uniform(stream: int, times: Times) -> Values:
    """Return uniform numbers 0..1 that depend only on the stream and the time (splitmix64)."""
    state = times.astype(np.uint64) * _GOLDEN + np.uint64(stream * 0x632BE59BD9B4E019 % 2**64)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return np.asarray((state >> np.uint64(11)).astype(np.float64) / 2.0**53)


def run_of(tenant: Tenant, times: Times) -> tuple[Times, Times]:
    """Return the run number and the seconds since its start at each time; -1 between two runs."""
    if not tenant.period_seconds:
        return np.zeros_like(times), times % _DAY
    run, elapsed = np.divmod(times + tenant.offset_seconds, tenant.period_seconds)
    return np.where(elapsed < tenant.run_seconds, run, -1), elapsed


def utilization(tenant: Tenant, times: Times) -> Values:
    """Return the SM activity 0..1 of the tenant's devices before noise; 0 between two runs."""
    run, elapsed = run_of(tenant, times)
    if tenant.idle:
        return np.zeros(len(times))
    shape = _training if tenant.kind is WorkloadKind.TRAINING else _serving
    return np.where(run >= 0, tenant.level * shape(tenant, times, elapsed), 0.0)


def _training(tenant: Tenant, _times: Times, elapsed: Times) -> Values:
    progress = elapsed / tenant.run_seconds
    ramp = np.clip(elapsed / _WARM_UP, 0.02, 1.0)
    phase = np.where(progress < 0.1, 0.9, np.where(progress > 0.95, 0.65, 1.0))
    epoch, within = np.divmod(elapsed, tenant.epoch_seconds)
    rest = tenant.epoch_seconds - within
    dip = np.where(rest <= _DIP, 0.06, 1.0)
    evaluation = np.where((epoch % 5 == 4) & (rest <= _LONG_DIP) & (rest > _DIP), 0.4, 1.0)
    return np.asarray(ramp * phase * dip * evaluation)


def _serving(tenant: Tenant, times: Times, _elapsed: Times) -> Values:
    hour = (times + tenant.offset_seconds) % _DAY / 3600
    day = 0.5 - 0.5 * np.cos(2 * np.pi * (hour - 4) / 24)
    # 1970-01-01 was a Thursday, so days 2 and 3 of the epoch week are the weekend.
    weekend = np.isin(times // _DAY % 7, (2, 3))
    burst = 1 + 0.5 * (hashed_uniform(tenant.number + 7_000_003, times // 600) > 0.93)
    return np.asarray((0.12 + 0.88 * day) * np.where(weekend, 0.55, 1.0) * burst)


def with_noise(values: Values, stream: int, times: Times) -> Values:
    """Return the readings of one device: ±4 % of itself, and nothing where nothing runs."""
    noise = hashed_uniform(stream, times) + hashed_uniform(stream + 1, times) - 1
    return np.asarray(np.clip(values * (1 + 0.08 * noise), 0.0, 1.0))


def coarse_utilization(activity: Values) -> Values:
    """Return GPU_UTIL of an SM activity: any kernel in the period counts, so it is high.

    Whole percents, as the exporter reports them.
    """
    return np.asarray(np.round(np.clip(activity * 1.6, 0, 1), 2))


def memory_ratio(tenant: Tenant, times: Times) -> Values:
    """Return the used share of a device's memory 0..1; frameworks reserve early and keep it."""
    run, elapsed = run_of(tenant, times)
    if tenant.kind is WorkloadKind.TRAINING:
        filled = np.clip(elapsed / _WARM_UP, 0.15, 1.0)
    else:
        filled = 0.9 + 0.1 * hashed_uniform(tenant.number + 11_000_003, times // 1800)
    return np.where(run >= 0, tenant.memory_ratio * filled, 0.004)


def board_power(activity: Values, idle_watts: float, largest_watts: float) -> Values:
    """Return board power in W for the board's SM activity 0..1.

    Matching Acme's quantile curves to one another (.50 and 96 W, .73 and 290 W, .81 and 395 W)
    asks for more than linear growth; an exponent of 2.2 up to an activity of .84 is a compromise.
    """
    return np.asarray(
        idle_watts + (largest_watts - idle_watts) * np.clip(activity / 0.84, 0, 1) ** 2.2
    )


def missing(stream: int, times: Times) -> npt.NDArray[np.bool_]:
    """Return a mask of times with the node's exporter down: one ten-minute gap in 25 hours."""
    block = times // 600
    return np.asarray(hashed_uniform(stream, block) < 1 / 150)
