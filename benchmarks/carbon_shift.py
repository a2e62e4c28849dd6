"""What shifting work in time saves on real grids: the planner's start times beside simpler rules.

`python -m benchmarks.carbon_shift --data DIR [--full]`. Jobs that may wait come over some weeks;
each rule says when they begin, from what was known then, and what they emit or cost is counted by
what came. Carbon: 2021, forecasts as issued (CarbonCast), at a flat price of electricity. Money:
2023 and 2024, day-ahead prices alone, in the market's currency. Trimtab plans with the newest issue
as `energy.forecast_file`; its one setting that differs stands in the table, at its default and at
its end. The window and the threshold of its peers are chosen per zone on weeks before. Fleets are
taken to have room: the most GPUs at once tell how much.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks._grid_series import HOUR, GridSeries, carbon_series, price_series
from benchmarks._shift_rules import (
    NIGHT,
    Rule,
    at_once,
    chosen_quantile,
    chosen_window,
    forecast_rule,
    oracle_rule,
    threshold_rule,
    window_rule,
    yesterday_rule,
)
from benchmarks._shifted_jobs import (
    PUE,
    DrawnJob,
    PlannedStart,
    drawn_jobs,
    issue_file,
    planned_starts,
)
from data.base.units import GRAMS_PER_KILOGRAM
from data.records.recommendations import Range
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.energy import EnergySettings

RESULTS = Path(__file__).parent / "results" / "carbon_shift.md"
SEED, SLACK = 11, 12
CARBON_PRICE = 100.0
"""Per tonne: what makes carbon count beside electricity at its flat price."""
NO_SHIFT, ORACLE = "no shift", "oracle"
OURS = (
    ("Trimtab, mean hours of days before, any saving", 0.0, False),
    ("Trimtab, forecast, saving of 5 % (default)", 0.05, True),
    ("Trimtab, forecast, any saving", 0.0, True),
)
"""Name, planning.min_saving_ratio, and whether it has the forecast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Zones over some weeks; `earlier` is when the weeks begin that peers are chosen on."""

    title: str
    series: Callable[[Path, str], GridSeries]
    column: str
    zones: tuple[str, ...]
    earlier: datetime
    judged: datetime
    weeks: int

    @property
    def carbon(self) -> bool:
        """Whether it is about carbon, not money."""
        return self.column == "gco2e_per_kwh"

    @property
    def scale(self) -> float:
        """From the series' unit times kWh to kgCO2e or money."""
        return 1 / GRAMS_PER_KILOGRAM if self.carbon else 1.0


_AUGUST, _SEPTEMBER = datetime(2021, 8, 2, tzinfo=UTC), datetime(2021, 9, 6, tzinfo=UTC)
_SPRING, _AUTUMN = datetime(2023, 3, 6, tzinfo=UTC), datetime(2023, 10, 2, tzinfo=UTC)
_WINTER = datetime(2024, 1, 8, tzinfo=UTC)
_LOOKED_AT, _LOOKED_AT_TOO = ("DE", "CISO", "ERCO"), ("ES", "NYISO", "AUS_QLD")
_FRESH, _FRESH_TOO = ("NL", "PL", "PJM"), ("SE", "ISNE", "FPL", "BPAT")


def parts_of(*, full: bool) -> tuple[Part, ...]:
    """Return what is looked at; weeks of a zone that were looked at while building say so."""
    weeks = 3 if full else 2

    def carbon(title: str, zones: tuple[str, ...]) -> Part:
        return Part(
            title=f"Carbon, zones {title}",
            series=carbon_series,
            column="gco2e_per_kwh",
            zones=zones,
            earlier=_AUGUST,
            judged=_SEPTEMBER,
            weeks=weeks,
        )

    def money(title: str, zones: tuple[str, ...], judged: datetime) -> Part:
        return Part(
            title=f"Money, day-ahead prices, {title}",
            series=price_series,
            column="price_per_kwh",
            zones=zones,
            earlier=_SPRING,
            judged=judged,
            weeks=weeks,
        )

    return (
        carbon("looked at while building", _LOOKED_AT + (_LOOKED_AT_TOO if full else ())),
        carbon("not looked at", _FRESH + (_FRESH_TOO if full else ())),
        money("looked at while building", ("DE-LU", "US-CAL-CISO")[: 1 + full], _AUTUMN),
        money("not looked at", ("US-TEX-ERCO", "US-NY-NYIS"), _WINTER),
    )


@dataclass(slots=True)
class Score:
    """What a rule came to, over zones: amounts by zone, delays in h, most GPUs at once by zone.

    `promises` are what the planner promised to save of a job it put off, and what came.
    """

    amounts: dict[str, float] = field(default_factory=dict)
    delays: list[int] = field(default_factory=list)
    promises: list[tuple[Range, float]] = field(default_factory=list)
    most_gpus: dict[str, int] = field(default_factory=dict)

    def saved(self, usual: "Score", zones: Sequence[str]) -> float:
        """Return the mean over zones of the share saved."""
        return float(np.mean([1 - self.amounts[zone] / usual.amounts[zone] for zone in zones]))


def most_at_once(jobs: Sequence[DrawnJob], delays: Sequence[int]) -> int:
    """Return the most GPUs that are held at once."""
    steps: defaultdict[datetime, int] = defaultdict(int)
    for job, delay in zip(jobs, delays, strict=True):
        start = job.came_at + delay * HOUR
        steps[start] += job.gpus
        steps[start + job.hours * HOUR] -= job.gpus
    return int(np.cumsum([steps[at] for at in sorted(steps)]).max())


def settings_of(part: Part, slack: int, min_saving: float, file: str, by_hour: str) -> Settings:
    """Return the settings of Trimtab for a part."""
    return Settings(
        planning=PlanningSettings(
            slot_minutes=60,
            horizon_slots=48,
            checkpointed_jobs="*",
            shift_slack_hours=float(slack),
            min_saving_ratio=min_saving,
        ),
        energy=EnergySettings(
            pue=PUE,
            carbon_price_per_tonne=CARBON_PRICE if part.carbon else 0.0,
            forecast_file=file,
            carbon_by_hour=by_hour if part.carbon else "",
            electricity_price_by_hour="" if part.carbon else by_hour,
        ),
    )


def trimtab_starts(
    part: Part,
    series: GridSeries,
    jobs: Sequence[DrawnJob],
    *,
    slack: int,
    min_saving: float,
    forecast: bool,
) -> dict[int, PlannedStart]:
    """Return the starts of the planner, by the newest issue or by the mean hours of days before."""
    by_hour = ",".join(f"{max(0.0, value):.6g}" for value in series.by_hour(part.judged))
    groups: defaultdict[datetime, list[DrawnJob]] = defaultdict(list)
    for job in jobs:
        groups[job.came_at].append(job)
    starts: dict[int, PlannedStart] = {}
    with TemporaryDirectory() as folder:
        for hour, group in sorted(groups.items()):
            now = hour - timedelta(minutes=1)
            file = str(issue_file(series, now, Path(folder), part.column)) if forecast else ""
            settings = settings_of(part, slack, min_saving, file, "" if forecast else by_hour)
            starts |= planned_starts(group, settings)
    return starts


def kept_promises(
    part: Part, series: GridSeries, jobs: Sequence[DrawnJob], starts: Mapping[int, PlannedStart]
) -> list[tuple[Range, float]]:
    """Return what was promised for each job that waits, and what came, in kgCO2e or money."""
    found = []
    for job in jobs:
        if job.number not in starts:
            continue
        start = starts[job.number]
        promised = start.kgco2e if part.carbon else start.money
        came = [job.amount(series.at(at), series.actual) for at in (job.came_at, start.at)]
        if promised is not None:
            saved = (came[0] - came[1]) * job.work_share * part.scale
            found.append((promised, saved))
    return found


def scores_of(part: Part, data: Path, slack: int) -> dict[str, Score]:
    """Return the score of each rule over the zones of a part."""
    scores: defaultdict[str, Score] = defaultdict(Score)
    for zone in part.zones:
        series = part.series(data, zone)
        before = drawn_jobs(series, part.earlier, part.weeks, SEED + 1)
        jobs = drawn_jobs(series, part.judged, part.weeks, SEED)
        rules: dict[str, Rule] = {
            NO_SHIFT: at_once,
            f"night window, {NIGHT}:00 to 6:00": window_rule(series, NIGHT, slack),
            "best window of 8 h, of weeks before": window_rule(
                series, chosen_window(before, series, slack), slack
            ),
            "last known below a threshold": threshold_rule(
                series, chosen_quantile(before, series, slack), slack
            ),
            "best start, yesterday again": yesterday_rule(series, slack),
            "best start, forecast": forecast_rule(series, slack),
        }
        found = {name: [rule(job) for job in jobs] for name, rule in rules.items()}
        promises: dict[str, list[tuple[Range, float]]] = {}
        for name, min_saving, forecast in OURS:
            starts = trimtab_starts(
                part, series, jobs, slack=slack, min_saving=min_saving, forecast=forecast
            )
            planned = {number: start.at for number, start in starts.items()}
            found[name] = [
                (planned.get(job.number, job.came_at) - job.came_at) // HOUR for job in jobs
            ]
            promises[name] = kept_promises(part, series, jobs, starts)
        found[ORACLE] = [oracle_rule(series, slack)(job) for job in jobs]
        for name, delays in found.items():
            score = scores[name]
            score.amounts[zone] = sum(
                job.amount(series.at(job.came_at) + delay, series.actual)
                for job, delay in zip(jobs, delays, strict=True)
            ) / len(jobs)
            score.delays += delays
            score.promises += promises.get(name, [])
            score.most_gpus[zone] = most_at_once(jobs, delays)
    return dict(scores)


def table(part: Part, scores: dict[str, Score], slack: int) -> list[str]:
    """Return the lines of a part: a row per rule, and what each zone saves."""
    unit = "kg CO2e" if part.carbon else "EUR or USD"
    usual, best = scores[NO_SHIFT], scores[ORACLE]
    until = part.judged + timedelta(weeks=part.weeks)
    zones = part.zones
    lines = [
        "",
        f"## {part.title}; {slack} h of slack",
        "",
        (
            f"{part.judged:%Y-%m-%d} to {until:%Y-%m-%d}, {len(usual.delays)} jobs in "
            f"{len(zones)} zones; peers chosen on {part.weeks} weeks from "
            f"{part.earlier:%Y-%m-%d}. Saved: mean of the zones."
        ),
        "",
        (
            f"| rule | {unit} a job | saved | of the oracle's | delayed | mean delay, h | most "
            f"GPUs at once | {' | '.join(zones)} |"
        ),
        f"|---|{'---:|' * (6 + len(zones))}",
    ]
    for name, score in scores.items():
        amount = part.scale * float(np.mean(list(score.amounts.values())))
        saved, most = score.saved(usual, zones), best.saved(usual, zones)
        delays = np.array(score.delays)
        peak = sum(score.most_gpus.values()) / sum(usual.most_gpus.values())
        by_zone = " | ".join(f"{score.saved(usual, [zone]):+.1%}" for zone in zones)
        lines.append(
            f"| {name} | {amount:.3g} | {saved:+.1%} | {saved / most:.0%} | "
            f"{np.mean(delays > 0):.0%} | {delays.mean():.1f} | {peak:.2f} × | {by_zone} |"
        )
    lines += ["", *(promise_line(name, scores[name], unit) for name, _saving, told in OURS if told)]
    return lines


def promise_line(name: str, score: Score, unit: str) -> str:
    """Return what a rule promised to save of the jobs that it put off, and what came."""
    if not score.promises:
        return f"* {name}: no job was put off."
    promised = sum(promise.central for promise, _came in score.promises)
    came = sum(saved for _promise, saved in score.promises)
    inside = np.mean([promise.low <= saved <= promise.high for promise, saved in score.promises])
    return (
        f"* {name}: promised {promised:.3g} {unit} on {len(score.promises)} jobs, {came:.3g} came; "
        f"{inside:.0%} of the promised ranges (80 %) held it."
    )


def main() -> None:
    """Print the tables and write them to benchmarks/results/carbon_shift.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    parser.add_argument("--full", action="store_true", help="all zones, four weeks, other slacks")
    options = parser.parse_args()
    data = Path(options.data)
    if not (data / "carbon").is_dir():
        print(f"No series of grids in {data}/carbon.")
        return
    lines = (__doc__ or "").splitlines()[2:]
    for slack in (SLACK, 6, 24) if options.full else (SLACK,):
        for part in parts_of(full=options.full):
            found = table(part, scores_of(part, data, slack), slack)
            lines += found
            print("\n".join(found), flush=True)
    RESULTS.write_text("\n".join(lines).strip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
