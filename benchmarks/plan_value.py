"""What forecasts are worth: plans made hour by hour from the past, paid with what really came.

`python -m benchmarks.plan_value --data DIR [--full] [--only SOURCE]`. Cost is the rent of what is
held, four rents of a GPU-hour that is missing, and 62 s of rent of a service's GPUs whenever their
number changes. All peers of a case see the same past and share the same fleet, whose size is the
85 % quantile of total demand; the oracle is one plan of the whole window that knew it. Without
`--full` every window is 6 h.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.optimize import linprog  # type: ignore[import-untyped]

from benchmarks._plan_value_replay import (
    AHEAD_HOURS,
    MISSING_PRICE,
    Held,
    ValueCase,
    Values,
    by_last_value,
    by_last_value_and_its_errors,
    by_trimtab,
    clipped,
    oracle,
    planned,
)
from benchmarks._plan_value_sets import SOURCES, cases
from data.records.forecasts import QuantilePath

RESULTS = Path(__file__).parent / "results" / "plan_value.md"
OURS, LAST = "planner + Trimtab's forecasts", "planner + last value"
_SHORT_HOURS = 6
_PAST_HOURS = 14 * 24
_HPA_TARGET, _HPA_TOLERANCE = 0.8, 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """A case with what every peer held, the oracle first, and the oracle's certified gap."""

    case: ValueCase
    held: tuple[Held, ...]
    gap_ratio: float

    def costs(self, name: str) -> Values:
        """Return a peer's cost by service."""
        return next(entry for entry in self.held if entry.name == name).costs(self.case)

    def above(self, name: str) -> float:
        """Return a peer's cost above the oracle's, as a ratio."""
        return float(self.costs(name).sum() / self.costs(self.held[0].name).sum() - 1)


def judged(case: ValueCase) -> Outcome:
    """Return what all peers hold in a case."""
    best, gap = oracle(case)
    said = [by_trimtab(case, hour, AHEAD_HOURS) for hour in range(case.hours)]

    def ours(_case: ValueCase, hour: int, _ahead: int) -> list[QuantilePath]:
        return said[hour]

    return Outcome(
        case=case,
        held=(
            best,
            planned(case, OURS, ours),
            planned(case, "the same, each plan from the one before", ours, rolls=True),
            planned(case, LAST, by_last_value),
            planned(case, "planner + last value and its errors", by_last_value_and_its_errors),
            *_rules(case),
        ),
        gap_ratio=gap,
    )


def _rules(case: ValueCase) -> list[Held]:
    """Return what rules without a planner hold."""
    past = case.demand[:, max(0, case.first - _PAST_HOURS) : case.first]
    mean, peak = np.nanmean(past, axis=1), np.nanmax(past, axis=1)
    seen = np.stack([case.now(hour) for hour in range(case.hours)], axis=1)
    wished = {
        "last value, no planner": seen,
        "lines fitted on these very hours, no planner": _in_hindsight(case),
        "autoscaler (HPA) at 80 %": _autoscaled(seen),
        "reactive .9 / .5": _reactive(seen),
        "static mean of 14 d": np.repeat(mean[:, None], case.hours, axis=1),
        "static peak of 14 d": np.repeat(peak[:, None], case.hours, axis=1),
    }
    return [
        Held(name=name, counts=np.stack([clipped(row, case.capacity) for row in wish.T], axis=1))
        for name, wish in wished.items()
    ]


def _in_hindsight(case: ValueCase) -> Values:
    """Return the lines of the past that would have been best, fitted on the window itself.

    No forecast, as it knows what came: it bounds what a line of these six features can reach. The
    quantile is the one that pays at this price of a missing hour.
    """
    share = 1 - 1 / MISSING_PRICE
    at = np.arange(case.first, case.first + case.hours)
    wished = []
    for row in np.nan_to_num(case.demand):
        last, day = row[at - 1], sliding_window_view(row, 24)[at - 24]
        days = 24 * np.arange(1, min(14, (case.first - 1) // 24) + 1)[:, None]
        features = np.column_stack(
            [
                np.ones(case.hours),
                last - row[at - 2],
                row[at - 2] - row[at - 3],
                day[:, -6:].mean(axis=1) - last,
                day.mean(axis=1) - last,
                (row[at - days] - row[at - 1 - days]).mean(axis=0),
            ]
        )
        sides = np.hstack([features, -features, np.eye(case.hours), -np.eye(case.hours)])
        price = np.repeat([0.0, share, 1 - share], [2 * features.shape[1], case.hours, case.hours])
        found = linprog(price, A_eq=sides, b_eq=row[at] - last).x
        size = features.shape[1]
        wished.append(last + features @ (found[:size] - found[size : 2 * size]))
    return np.array(wished)


def _autoscaled(seen: Values) -> Values:
    """Return the counts of the Horizontal Pod Autoscaler: none changes within a tenth of target."""
    counts = np.empty(seen.shape)
    now = np.maximum(np.ceil(seen[:, 0]), 1.0)
    for hour, demand in enumerate(seen.T):
        ratio = demand / now / _HPA_TARGET
        wish = np.maximum(np.ceil(demand / _HPA_TARGET), 1.0)
        now = np.where(np.abs(ratio - 1) <= _HPA_TOLERANCE, now, wish)
        counts[:, hour] = now
    return counts


def _reactive(seen: Values) -> Values:
    """Return the counts of a threshold rule: half more above 0.9, half less below 0.5."""
    counts = np.empty(seen.shape)
    now = np.maximum(np.ceil(seen[:, 0]), 1.0)
    for hour, demand in enumerate(seen.T):
        now = np.where(demand > 0.9 * now, np.ceil(1.5 * now), now)
        now = np.where(demand < 0.5 * now, np.maximum(np.ceil(0.5 * now), 1.0), now)
        counts[:, hour] = now
    return counts


def report(outcomes: Sequence[Outcome], absent: Sequence[str]) -> str:
    """Return the tables."""
    names = [entry.name for entry in outcomes[0].held] if outcomes else []
    heads = [
        f"{outcome.case.name}, {outcome.case.hours} h, {len(outcome.case.services)} services"
        for outcome in outcomes
    ]
    lines = [
        "Plans made every hour from the past and paid with what came; cost above the oracle's, and",
        "the share of demand that was missing. A missing GPU-hour costs 4 rents, a change 62 s of",
        "rent; capacity is the 85 % quantile of total demand. See docs/internals/forecasting.md.",
        "",
        "| policy | " + " | ".join(heads) + " |",
        "|---|" + "---:|" * len(heads),
    ]
    for name in names:
        cells = [
            f"{100 * outcome.above(name):+.1f} % / {100 * held.missing_ratio(outcome.case):.1f} %"
            for outcome in outcomes
            for held in outcome.held
            if held.name == name
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    gaps = [f"{100 * outcome.gap_ratio:.2f} %" for outcome in outcomes]
    lines += [
        "| certified gap of the oracle | " + " | ".join(gaps) + " |",
        "",
        "**By service**",
        "",
    ]
    for outcome in outcomes:
        ours, last = outcome.costs(OURS), outcome.costs(LAST)
        below = int((ours < last - 1e-9).sum())
        lines.append(
            f"* {outcome.case.name}: forecasts below the last value on {below} of {len(ours)} "
            "services; planning on the last value costs "
            f"{100 * (last.sum() / ours.sum() - 1):+.1f} %."
        )
    return "\n".join([*lines, *absent]) + "\n"


def main() -> None:
    """Print the tables and write them to benchmarks/results/plan_value.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="whole windows; tens of minutes")
    parser.add_argument("--only", choices=sorted(SOURCES), help="one source, not written")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    found, absent = cases(options.data, options.only)
    if not options.full:
        found = [replace(entry, hours=min(entry.hours, _SHORT_HOURS)) for entry in found]
    text = report([judged(entry) for entry in found], absent)
    if not options.only:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
