"""Slowdown of drawn pods on the boards that the product lets them share, and whether it is noticed.

The truth is measured: pods i and j that work in the same minute have the speeds of a pair of
programs whose activity alone is nearest to theirs, half of the pairs an H200's that take turns,
half Lucid's. Beside several, the speeds are multiplied. What engines time of their requests is
drawn around that truth, and judged by the product's own verification.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks._sharing_pods import SLOT, Pods
from benchmarks._sharing_policies import Groups, Indices, ours, truth
from dashboard.apply.worker.verification import is_undecided, request_speed
from data.settings.apply import ApplySettings

Values = npt.NDArray[np.float64]
MEASURED = Path(__file__).parent / "measured" / "shared_board_h200.json"
_DAY, _FIVE = 1440, 5
_NEAREST, _HOUR, _FAR = 5, 60, 0.1
_LOOKS = [60 * hours for hours in (2, 3, 4, 6, 8, 12, 16, 24, 32, 40)]
"""Minutes after the change; the product looks whenever readings came."""
_REQUESTS_A_MINUTE, _TOKENS, _SPREAD = 6.0, 200.0, 0.3
"""Of a pod at work; tokens of a request in the mean, and the spread of a token's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A share: the speed of its work, and what the verification said of it.

    `speed` is that of its time until the verdict after `minutes`, `later` that of all minutes, of
    which it worked in `worked`; `told` is what the product read off its requests, None of too few.
    """

    speed: float
    later: float
    worked: int
    minutes: int
    told: float | None


@dataclass(frozen=True, slots=True)
class MeasuredPairs:
    """Activity of two programs alone [pairs, 2], and the speed of the first beside the second."""

    alone: Values
    speed: Values

    def of(self, one: float, other: float, random: np.random.Generator) -> float:
        """Return the speed of a program beside another, of one of the nearest pairs."""
        apart = np.abs(self.alone - (one, other)).sum(axis=1)
        nearest = np.argpartition(apart, _NEAREST)[:_NEAREST]
        return float(min(1.0, self.speed[random.choice(nearest)]))


def measured_pairs(data: Path) -> tuple[MeasuredPairs, MeasuredPairs]:
    """Return the pairs that take turns on an H200, and Lucid's, each in both orders."""
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]
    turns = [row for row in rows if row["sharing"] == "time-slicing"]
    folder = data / "lucid_profiles"
    pairs = pd.read_parquet(folder / "colocated_pairs.parquet")
    keys = ["model", "dataset", "batchsize", "amp"]
    alone = pd.read_csv(folder / "single_job_profiles.csv").set_index(keys)["gpu_util"] / 100
    util = [
        pairs[[f"{key}{side}" for key in keys]].apply(tuple, axis=1).map(alone) for side in (1, 2)
    ]
    known = util[0].notna() & util[1].notna()
    lucid = [values[known].to_numpy(float) for values in (*util, pairs["speed1"], pairs["speed2"])]
    h200 = [
        np.array([row[name][side] for row in turns])
        for name in ("sm_active", "speed")
        for side in (0, 1)
    ]
    return _both_orders(*h200), _both_orders(*lucid)


def _both_orders(one: Values, other: Values, first: Values, second: Values) -> MeasuredPairs:
    return MeasuredPairs(
        np.column_stack([np.r_[one, other], np.r_[other, one]]), np.r_[first, second]
    )


def noticed(
    pods: Pods,
    there: Indices,
    groups: Groups,
    pairs: Sequence[MeasuredPairs],
    minute: int,
    seed: int,
) -> Iterator[Noticed]:
    """Yield what befell each share that began in a minute, and what of it was noticed."""
    random = np.random.default_rng(seed)
    row = {int(pod): number for number, pod in enumerate(there)}
    _memory, busy, here = truth(pods, there, minute, pods.minutes)
    works = (busy > 0) & (here > 0)
    before = np.nan_to_num(pods.busy[there, minute - _DAY : minute])
    level = np.array([one[one > 0].mean() / 100 if one.any() else 0.0 for one in before])
    for group in groups:
        members = [row[pod] for pod in group] if len(group) > 1 else []
        for one in members:
            slowness = np.ones(busy.shape[1])
            for other in members:
                if other != one:
                    kind = pairs[int(random.integers(len(pairs)))]
                    speed = kind.of(level[one], level[other], random)
                    slowness *= np.where(works[other], 1 / speed, 1.0)
            yield _judged(before[one] > 0, works[one], slowness, minute, random)


def _judged(
    before: npt.NDArray[np.bool_],
    works: npt.NDArray[np.bool_],
    slowness: Values,
    minute: int,
    random: np.random.Generator,
) -> Noticed:
    """Judge one share: `slowness` is the time of its work in coming minutes, 1 alone."""
    settings = ApplySettings()
    least = 1 - settings.throughput_loss_ratio
    alone = _timed(before, np.ones(len(before)), minute - _DAY, random)
    served = _timed(works, slowness, minute, random)
    first = settings.verify_slots * SLOT
    looks = [*(at for at in _LOOKS if first <= at < len(works)), len(works)]
    minutes = next(
        (at for at in looks if not is_undecided(alone, served[: at // _FIVE], least)), looks[-1]
    )
    told = request_speed(alone, served[: minutes // _FIVE])
    return Noticed(
        speed=_speed(works[:minutes], slowness[:minutes]),
        later=_speed(works, slowness),
        worked=int(works.sum()),
        minutes=minutes,
        told=told[0] if told else None,
    )


def _speed(works: npt.NDArray[np.bool_], slowness: Values) -> float:
    return float(works.sum() / slowness[works].sum()) if works.any() else 1.0


def _timed(
    works: npt.NDArray[np.bool_], slowness: Values, minute: int, random: np.random.Generator
) -> pd.DataFrame:
    """Return what an engine times in slots of five minutes, as a service's traffic is read."""
    count = random.poisson(_REQUESTS_A_MINUTE * works)
    minutes = np.repeat(np.arange(len(works)), count)
    tokens = 1 + random.exponential(_TOKENS, len(minutes))
    seconds = tokens * random.lognormal(0, _SPREAD, len(minutes)) / 50 * slowness[minutes]
    sums = [np.bincount(minutes, each, minlength=len(works)) for each in (tokens, seconds)]
    slots = (minute + np.arange(len(works))) // _FIVE * _FIVE
    frame = pd.DataFrame(
        {
            "slot_start": pd.to_datetime(slots * 60, unit="s", utc=True),
            "request_seconds": sums[1],
            "request_count": count.astype(float),
            "generation_tokens": sums[0],
        }
    )
    return frame.groupby("slot_start", as_index=False).sum()


def slowdown_table(fleets: Iterable[tuple[int, Pods]], data: Path) -> list[str]:
    """Return what befell the shares of fleets, by their seed, from the second day on."""
    pairs = measured_pairs(data)
    shares = list[Noticed]()
    for seed, pods in fleets:
        there = pods.there(_DAY)
        shares += noticed(pods, there, ours(pods, there, _DAY).groups, pairs, _DAY, seed)
    least = 1 - ApplySettings().throughput_loss_ratio
    hour = [share for share in shares if share.worked >= _HOUR]
    columns = [_figures(some, least) for some in (shares, hour)]
    return [
        "| of shares | all | that worked an hour or more |",
        "|---|---:|---:|",
        *(f"| {name} | {one} | {columns[1][name]} |" for name, one in columns[0].items()),
    ]


def _figures(shares: Sequence[Noticed], least: float) -> dict[str, str]:
    slowed = [share for share in shares if share.speed < least]
    alarms = [share for share in shares if share.told is not None and share.told < least]
    right = [share for share in alarms if share.speed < least]
    far = [share for share in slowed if share.speed < least - _FAR]
    hours = [share.minutes / 60 for share in right]

    def part(some: Sequence[Noticed], of: Sequence[Noticed] = shares) -> str:
        return f"{len(some)} ({100 * len(some) / max(1, len(of)):.1f} %)"

    return {
        "made": str(len(shares)),
        f"speed below {least:g} until the verdict": part(slowed),
        f"speed below {least:g} in both days": part([s for s in shares if s.later < least]),
        "found by verification, of those slowed": part(right, slowed),
        "too few requests timed, of those slowed": part(
            [share for share in slowed if share.told is None], slowed
        ),
        f"found, of those slowed below {least - _FAR:g}": part(
            [share for share in right if share in far], far
        ),
        "hours until found, median and most": f"{np.median(hours):.0f}, {max(hours):.0f}"
        if hours
        else "–",
        "false alarms": part([share for share in alarms if share.speed >= least]),
        "no verdict on speed": part([share for share in shares if share.told is None]),
        "lowest speed in both days": f"{min(share.later for share in shares):.2f}",
        "mean speed": f"{np.mean([share.later for share in shares]):.3f}",
    }
