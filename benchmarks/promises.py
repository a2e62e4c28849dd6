"""What recommendations promise against what comes of them, on drawn fleets with a known truth.

`python -m benchmarks.promises [--full] [--hidden] [--seed N] [--kept DIR]`. Every fleet is given to
a cycle through its store; every recommendation is then applied alone to a future that is played
twice from one draw, with the change and without it (`_promised_fleet.py`, `_promised_future.py`).
`--full` plays seeds too on which nothing was tuned. `--hidden`: nothing tells of checkpoints,
which half of the runs write all the same; what a change loses of a run counts.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import ndtri  # type: ignore[import-untyped]
from scipy.stats import beta  # type: ignore[import-untyped]

from benchmarks._promised_cycle import recommended
from benchmarks._promised_draw import draw_fleet, site_of
from benchmarks._promised_fleet import MIXED, NOW, STEP, DrawnFleet
from benchmarks._promised_future import Came, Setting, came_of, no_change
from benchmarks._promised_measured import Measured, measured_of
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.records.recommendations import Range, Recommendation
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.energy import EnergySettings

RESULTS = Path(__file__).parent / "results" / "promises.md"
HIDDEN = RESULTS.with_name("promises_hidden_checkpoints.md")
SLOTS = ((5, 6), (15, 12), (30, 24), (60, 24))
"""Minutes of a slot, hours of the horizon."""
PAST_DAYS = 4
FLEETS = 50
FUTURES = 10
"""How often each recommendation is applied: ends of jobs, what its change takes and does and what
no reading tells of the site are drawn anew. Ten, so that q10 and q90 lie between two futures."""
_BY_HOUR = (
    (0.12,) * 6 + (0.22,) * 4 + (0.30,) * 4 + (0.22,) * 3 + (0.42,) * 4 + (0.16,) * 3
)  # fmt: skip
FIGURES = ("GPU-h", "kWh", "money")
TUNED, JUDGED = ((1,), 20), (tuple(range(37, 47)), FLEETS)
"""Seeds and the fleets played of each. Assumptions were set on 1 to 5. On 6 and 7, which judged
before, it was looked at where energy came otherwise, what came of 8 and 9 led to another law of
ends, and of 10 and 11 to where ends lie between ended runs. What came of caps on 10 to 13 was
looked into on 1 to 9. 14 to 36 judged before; of 16 to 22 it was looked at where money of reclaimed
boards came otherwise and what was measured of them. 37 to 46 only judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """One recommendation with what came of it in one future; `fleet` is seed and number.

    `nothing` and `measured` belong to the first future.
    """

    fleet: tuple[int, int]
    kind: str
    shape: str
    slot: str
    promised: tuple[Range | None, Range | None, Range | None]
    came: Came
    nothing: Came | None
    measured: Measured | None

    def pair(self, figure: int) -> tuple[Range, float] | None:
        """Return what was promised of a figure and what came."""
        promised = self.promised[figure]
        came = (self.came.gpu_hours, self.came.kwh, self.came.money)[figure]
        return None if promised is None else (promised, came)


def slots_of(number: int) -> tuple[int, int]:
    """Return minutes of a slot and hours of the horizon of fleet `number`: in turn by shape."""
    return SLOTS[(number // 5 if number < MIXED else number // 2) % len(SLOTS)]


def settings_of(number: int) -> Settings:
    """Return the settings of fleet `number`: every other one has prices by hour."""
    minutes, hours = slots_of(number)
    prices = ",".join(str(price) for price in _BY_HOUR) if number % 2 else ""
    return replace(
        Settings(),
        planning=PlanningSettings(
            slot_minutes=minutes,
            checkpointed_jobs="*",
            horizon_slots=hours * 60 // minutes,
            history_days=PAST_DAYS,
            shift_slack_hours=4.0,
            budget_seconds=2.0,
        ),
        energy=EnergySettings(region="DEU", electricity_price_by_hour=prices),
    )


def drawn(seed: int, number: int) -> DrawnFleet:
    """Return fleet `number` of a seed."""
    minutes, hours = slots_of(number)
    return draw_fleet(seed, number, slot_minutes=minutes, past_days=PAST_DAYS, hours=hours)


def applies(
    fleet: DrawnFleet,
    settings: Settings,
    recommendations: Iterable[Recommendation],
    catalogue: GpuCatalogue,
    *,
    seed: int = 0,
) -> list[Apply]:
    """Return every change that promises a figure, applied."""
    planning = settings.planning
    recommendations = tuple(recommendations)
    setting = Setting(
        prices=settings.energy.prices_by_hour,
        horizon=planning.horizon_slots * planning.slot_minutes * 60 // STEP,
        base_watts_per_gpu=settings.nodes.base_watts_per_gpu,
        boot_steps=round(settings.nodes.boot_minutes * 60 / STEP),
        left_at=dict(map(_left, filter(_leaves, recommendations))),
        hidden=planning.checkpointed_jobs != "*",
    )
    futures = futures_of(fleet, seed)
    found = []
    for recommendation in recommendations:
        promised = (
            recommendation.savings.gpu_hours,
            recommendation.savings.energy_kwh,
            recommendation.savings.cost,
        )
        if promised == (None, None, None) or (
            recommendation.is_advice and not recommendation.job_id
        ):
            continue  # advice for all jobs of a model is no change that can be played
        for future, played_fleet in enumerate(futures):
            looked_at = recommendation.job_id and not future
            found.append(
                Apply(
                    fleet=(seed, fleet.number),
                    kind=str(recommendation.action),
                    shape=fleet.shape,
                    slot=f"{planning.slot_minutes} min",
                    promised=promised,
                    came=came_of(played_fleet, recommendation, setting),
                    nothing=no_change(fleet, recommendation, setting) if looked_at else None,
                    measured=measured_of(fleet, recommendation, setting, settings, catalogue)
                    if looked_at
                    else None,
                )
            )
    return found


def _leaves(one: Recommendation) -> bool:
    """Say whether a job leaves its boards as recommended: it is given up or starts again."""
    started = one.transition is not None and one.transition.seconds.high > 0
    return bool(one.job_id) and (started or not one.proposed.gpu_count)


def _left(one: Recommendation) -> tuple[str, float]:
    """Return a job and the step in which it leaves its boards as recommended."""
    begins = 0.0 if one.starts_at is None else (one.starts_at - NOW).total_seconds()
    return one.job_id, begins / STEP


def futures_of(fleet: DrawnFleet, seed: int) -> tuple[DrawnFleet, ...]:
    """Return the fleet in several futures: ends of jobs, changes and the site are drawn anew.

    No reading tells of the site and one number of it moves all of a fleet's nodes alike, so that a
    single draw would be judged and not the promise. Each future has its own tenth of the levels
    of both, and each of the lower half its mirror in the upper (antithetic, stratified).
    """
    random = np.random.default_rng((seed, fleet.number, FUTURES))
    lower = (np.arange(FUTURES // 2) + random.random((2, FUTURES // 2))) / FUTURES
    levels = random.permuted(np.hstack([lower, 1 - lower]), axis=1)
    found = []
    for future, (cooling, servers) in enumerate(ndtri(levels).T):
        jobs = fleet.jobs
        if future:
            anew = np.random.default_rng((seed, fleet.number, future))
            jobs = tuple(replace(job, chance=anew.random(len(job.chance))) for job in jobs)
            jobs = tuple(job.ending_anew(fleet.past, anew) for job in jobs)
        found.append(replace(fleet, jobs=jobs, site=site_of(float(cooling), float(servers))))
    return tuple(found)


def is_certain(one: Range) -> bool:
    """Say whether a promise has no width."""
    return one.high - one.low <= 1e-6 * max(1.0, abs(one.central))


def _rounding(value: float) -> float:
    """Return by how much sums of the same numbers may differ."""
    return 1e-9 * max(1.0, abs(value))


def share_of(inside: float, count: float) -> str:
    """Return a share in % with the 90 % interval that so few draws leave (Clopper, Pearson).

    Of the futures of one recommendation each counts as its part: they have the same job and past.
    """
    if not count:
        return "–"
    low = beta.ppf(0.05, inside, count - inside + 1) if inside else 0.0
    high = beta.ppf(0.95, inside + 1, count - inside) if inside < count else 1.0
    return f"{100 * inside / count:.0f} % of {count:.0f} ({100 * low:.0f}–{100 * high:.0f})"


def bias_of(over: Sequence[tuple[tuple[int, int], float]], whole: float) -> str:
    """Return the sum of what was promised too much in % of a whole, with its standard error.

    What fleets draw and how their sites are cooled is common to their jobs: fleets err apart.
    """
    if abs(whole) < 1e-9 or not over:
        return "–"
    by_fleet: dict[tuple[int, int], float] = {}
    for fleet, value in over:
        by_fleet[fleet] = by_fleet.get(fleet, 0.0) + value
    values = np.array(list(by_fleet.values()))
    error = float(np.sqrt(len(values)) * values.std()) / abs(whole)
    return f"{100 * values.sum() / abs(whole):+.1f} ± {100 * error:.1f} %"


def figures(found: Sequence[Apply], figure: int) -> str:
    """Return the cells of a figure: coverage, low, high misses, what came, bias."""
    pairs = [(apply, *pair) for apply in found if (pair := apply.pair(figure)) is not None]
    if not pairs:
        return "– | – | – | –"
    wide = [(promised, came) for _one, promised, came in pairs if not is_certain(promised)]
    below = sum(came < promised.low - _rounding(came) for promised, came in wide)
    above = sum(came > promised.high + _rounding(came) for promised, came in wide)
    inside = len(wide) - below - above
    share = share_of(inside / FUTURES, len(wide) / FUTURES) if wide else "certain"
    total = sum(came for _one, _promised, came in pairs)
    over = [(entry.fleet, promised.central - came) for entry, promised, came in pairs]
    whole = sum(entry.came.used_kwh for entry, _promised, _came in pairs) if figure == 1 else total
    return f"{share} | {below} / {above} | {total / FUTURES:,.1f} | {bias_of(over, whole)}"


def table(title: str, found: Sequence[Apply], key: Callable[[Apply], str]) -> list[str]:
    """Return a table with a row for each value of a key."""
    cells = " | ".join(
        f"{figure}: in the 80 % interval | below / above | came | bias{of}"
        for figure, of in zip(FIGURES, ("", " of use", ""), strict=True)
    )
    lines = ["", f"| {title} | advised | {cells} |", "|---|" + "---:|" * 13]
    for value in (*sorted({key(apply) for apply in found}), ""):
        rows = [apply for apply in found if not value or key(apply) == value]
        shown = " | ".join(figures(rows, figure) for figure in range(3))
        lines.append(f"| {value or 'all'} | {len(rows) // FUTURES} | {shown} |")
    return lines


def measured_table(found: Sequence[Apply]) -> list[str]:
    """Return what Savings measures after a change against the truth of the same slots."""
    lines = [
        "",
        (
            "| kind | measured | GPU-h in its range | came | bias | kWh in its range | came "
            "| bias of use | kWh of no change: measured | of use |"
        ),
        "|---|" + "---:|" * 9,
    ]
    for kind in (*sorted({apply.kind for apply in found}), ""):
        rows = [
            (apply.fleet, apply.measured)
            for apply in found
            if (not kind or apply.kind == kind) and apply.measured is not None
        ]
        if not rows:
            continue
        nothing = sum(row.nothing_kwh for _fleet, row in rows)
        used = sum(row.used_kwh for _fleet, row in rows)
        cells = []
        for name in ("gpu_hours", "kwh"):
            known = [
                (fleet, entry, getattr(row.truth, name))
                for fleet, row in rows
                if (entry := getattr(row, name)) is not None
            ]
            inside = sum(
                entry.low - 1e-9 <= true <= entry.high + 1e-9 for _fleet, entry, true in known
            )
            came = sum(true for _fleet, _one, true in known)
            over = [(fleet, entry.central - true) for fleet, entry, true in known]
            bias = bias_of(over, used if name == "kwh" else came)
            cells.append(f"{share_of(inside, len(known))} | {came:,.1f} | {bias}")
        lines.append(
            f"| {kind or 'all'} | {len(rows)} | {' | '.join(cells)} | {nothing:+,.2f} "
            f"| {100 * nothing / used if used else 0:+.1f} % |"
        )
    return lines


def report(title: str, found: Sequence[Apply]) -> list[str]:
    """Return the tables of one or more seeds."""
    zero = max(
        abs(value)
        for apply in found
        if apply.nothing is not None
        for value in (apply.nothing.gpu_hours, apply.nothing.kwh, apply.nothing.money)
    )
    fleets = len({apply.fleet for apply in found})
    return [
        "",
        f"## {title}",
        "",
        (
            f"{len(found) // FUTURES} recommendations on {fleets} fleets, each applied in "
            f"{FUTURES} futures. A change of no effect came to at most {zero:g}."
        ),
        *table("kind", found, lambda entry: entry.kind),
        *table("slot", found, lambda entry: entry.slot),
        *table("fleet", found, lambda entry: entry.shape),
        "",
        "What Savings measures over the first slots after a change, against the truth of them:",
        *measured_table(found),
    ]


def played(seed: int, fleets: int, kept: Path | None, *, hidden: bool = False) -> list[Apply]:
    """Return all applies of a seed; `kept` is a folder for what is known of its fleets."""
    found = []
    for number in range(fleets):
        fleet, settings = drawn(seed, number), settings_of(number)
        if hidden:
            planning = replace(settings.planning, checkpointed_jobs="none")
            settings = replace(settings, planning=planning)
        file = None if kept is None else kept / f"{seed}-{number}.pickle"
        found += applies(fleet, settings, *recommended(fleet, settings, file), seed=seed)
    return found


def main() -> None:
    """Print the tables and write them to benchmarks/results/promises.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also seeds that nothing was tuned on")
    parser.add_argument("--seed", type=int, help="this seed alone, not written")
    parser.add_argument("--hidden", action="store_true", help="nothing tells of checkpoints")
    parser.add_argument("--fleets", type=int, default=FLEETS, help="fewer are not written")
    parser.add_argument("--kept", type=Path, help="folder that keeps forecasts for the next run")
    parser.add_argument("--data", default="", help="not used: the fleets are drawn")
    options = parser.parse_args()
    started = time.process_time()
    lines = [*INTRODUCTION, *(HIDDEN_INTRODUCTION if options.hidden else ())]
    parts = [("tuned on", *TUNED), ("held out", *JUDGED)][: 2 if options.full else 1]
    if options.seed is not None:
        parts = [("alone", (options.seed,), FLEETS)]
    for name, seeds, fleets in parts:
        most = min(fleets, options.fleets)
        found = [
            entry
            for seed in seeds
            for entry in played(seed, most, options.kept, hidden=options.hidden)
        ]
        shown = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
        lines += report(f"Seed{'s' * (len(seeds) > 1)} {shown}, {name}", found)
    kept = " with what is known of the fleets kept" if options.kept else ""
    lines += ["", f"{time.process_time() - started:.0f} CPU s{kept}."]
    text = "\n".join(lines) + "\n"
    if options.hidden:
        HIDDEN.write_text(text, encoding="utf-8")
    elif options.fleets == FLEETS and options.seed is None:
        RESULTS.write_text(text, encoding="utf-8")
    print(text)


INTRODUCTION = (
    "Recommendations of drawn fleets, each applied alone in several futures, which draw anew when",
    "jobs end and what a change takes and does; each is played twice from one draw, with it and",
    "without. `benchmarks/_promised_fleet.py` says how fleets are drawn. *Certain*: a promise",
    "without width. In brackets behind a share: what so few recommendations leave open (90 %",
    "binomial interval; rather more, as what fleets draw is common to their jobs). Below and",
    "above: futures in which what came lay there. Bias: promised less came, with its standard",
    "error over fleets; of GPU-hours and money in % of what came, of energy in % of what the jobs",
    "used without the change: freed boards stay powered, so what they save is a small difference",
    "of two large figures, of either sign, and no share of it says how wrong a promise is. Of",
    "nodes the use is what they draw empty. Base power of servers and PUE are what no reading",
    "tells: their law is drawn as it is promised, evenly over the futures of a fleet, and is not",
    "judged here.",
)

HIDDEN_INTRODUCTION = (
    "",
    "Nothing tells of checkpoints: half of the runs write one an hour. A change that ends a run",
    "loses what it did since, or all of it. Work that was stopped never returns in these fleets:",
    "its promise counts the chance that it does, and so is below what comes.",
)


if __name__ == "__main__":
    main()
