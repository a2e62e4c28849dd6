"""The chance that work returns, stated of jobs at rest, against what came true.

`python -m benchmarks.returns --data DIR [--full]`. At moments of drawn fleets and of recordings
every job that has rested for some hours is told the chance that it works again within the horizon,
from what was seen up to then (`planner/jobs/work_returns.py`), and watched on. `--full` draws
500 fleets. Peers: a stop after four idle hours, which states no chance at all, and the share of
similar jobs' rests of that length that ended in time.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks._return_fleets import draw_return_fleet
from benchmarks._return_sets import (
    WorkSet,
    first_day_of_clients,
    genai_pods,
    servegen_clients,
    university_servers,
)
from data.facts.job_history import JobHistory
from data.settings.all_settings import PlanningSettings
from planner.jobs.work_returns import Rests, rests_of, return_of, similar_rests

Values = npt.NDArray[np.float64]
RESULTS = Path(__file__).parent / "results" / "returns.md"
HORIZONS = (6.0, 12.0, 24.0)
LONG_IDLE = PlanningSettings().reclaim_idle_hours
MOST = PlanningSettings().max_return_chance
TUNED, JUDGED = range(300), range(4000, 4500)
"""Seeds of fleets on which constants were fitted, and of those on which none was."""
_HISTORY_DAYS = PlanningSettings().history_days
_EPOCH = np.datetime64("2026-01-05")
FIFTHS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A job at rest: its chance, that of similar jobs alone, what came, whether it may be stopped.

    `dead`: it was not seen to work again at all; `idle`: nor ever before. Jobs of one `source`
    share their causes.
    """

    source: str
    chance: float
    similar: float
    came: bool
    may_stop: bool
    dead: bool
    idle: bool


def judged(
    work_set: WorkSet, ahead: float, *, least: float = LONG_IDLE, source: str = ""
) -> Iterator[Judged]:
    """Yield every job that has rested for `least` hours at a moment and is seen for `ahead` on."""
    slots = round(ahead / work_set.slot_hours)
    for moment in work_set.moments:
        rests = {
            name: _rests(first, work[: moment - first], work_set.slot_hours)
            for name, (first, work) in work_set.jobs.items()
            if first < moment <= first + len(work) and not np.isnan(work[moment - first - 1])
        }
        others = similar_rests(rests, work_set.groups)
        for name, entry in rests.items():
            first, work = work_set.jobs[name]
            future = work[moment - first :]
            came = bool((future[:slots] == 1).any())
            unseen = len(future) < slots or bool(np.isnan(future[:slots]).any())
            if entry.present < least or unseen:
                continue
            found = return_of(entry, others[name], ahead)
            group = work_set.groups[name][-1]
            yield Judged(
                source=source or name,
                chance=found.chance,
                similar=_share(
                    (
                        rests[other]
                        for other in rests
                        if other != name and work_set.groups[other][-1] == group
                    ),
                    entry.present,
                    ahead,
                ),
                came=came,
                may_stop=found.may_stop(MOST),
                dead=not (future == 1).any(),
                idle=entry.never_worked,
            )


def _rests(first: int, work: Values, slot_hours: float) -> Rests:
    """Return the rests of as much history as a cycle reads."""
    past = work[-round(_HISTORY_DAYS * 24 / slot_hours) :]
    start = first + len(work) - len(past)
    slot = np.timedelta64(round(slot_hours * 3600), "s")
    times = (_EPOCH + (start + np.arange(len(past))) * slot).astype("datetime64[us]")
    rows = JobHistory(
        slot_start=times,
        effective_gpus=past,
        utilization_ratio=past,
        utilization_max_ratio=past,
        allocated_gpus=past,
        memory_used_mib=past,
        power_watts=past,
        sample_count=past,
    )
    return rests_of(rows, slot_hours=slot_hours, idle_ratio=0.01)


def _share(similar: Iterable[Rests], present: float, ahead: float) -> float:
    """Return the share of similar jobs' rests of this length that ended within the horizon."""
    ended = reached = 0
    for rests in similar:
        ended += int(((rests.returned >= present) & (rests.returned <= present + ahead)).sum())
        reached += int((rests.returned >= present).sum())
        reached += int((rests.unended >= present + ahead).sum())
    return (ended + 0.5) / (reached + 1)


def table(rows: Sequence[Judged]) -> list[str]:
    """Return what was stated and what came in each fifth, and each rule's error and stops."""
    if not rows:
        return ["No job rested for long enough."]
    chance, similar = (
        np.array([row.chance for row in rows]),
        np.array([row.similar for row in rows]),
    )
    came = np.array([row.came for row in rows], dtype=np.float64)
    dead, idle = (
        np.array(flags) for flags in zip(*((row.dead, row.idle) for row in rows), strict=True)
    )
    sources = np.unique([row.source for row in rows], return_inverse=True)[1]
    lines = [
        "| stated | jobs | mean stated | came | 90 % of came, sources | never at work | others |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for fifth in range(FIFTHS):
        own, other = (_in_fifth(values, fifth) for values in (chance, similar))
        never = own & idle
        lines.append(
            f"| {100 * fifth // FIFTHS}–{100 * (fifth + 1) // FIFTHS} % | {own.sum()} "
            f"| {_percent(chance[own])} | {_percent(came[own])} | {_span(came[own], sources[own])} "
            f"| {never.sum()}, {_percent(chance[never])}, {_percent(came[never])} "
            f"| {other.sum()}, {_percent(similar[other])}, {_percent(came[other])} |"
        )
    lines += [
        "",
        "| rule | Brier | stops | work came back | stops of jobs that never worked again |",
    ]
    lines += ["|---|---:|---:|---:|---:|"]
    rules = (
        ("chance and own rests (ours)", chance, np.array([row.may_stop for row in rows])),
        ("similar jobs' rests alone", similar, similar <= MOST),
        ("idle for 4 h", np.zeros(len(rows)), np.ones(len(rows), dtype=np.bool_)),
    )
    for name, stated, stops in rules:
        brier = float(np.mean((stated - came) ** 2))
        lines.append(
            f"| {name} | {brier:.3f} | {stops.sum()} of {len(rows)} | {_percent(came[stops])} "
            f"| {(stops & dead).sum()} of {dead.sum()} |"
        )
    return lines


def _span(came: Values, sources: npt.NDArray[np.int64]) -> str:
    """Return where 90 % of shares lie that come of as many sources drawn anew, and how many."""
    names, number_of = np.unique(sources, return_inverse=True)
    if len(names) < 2:
        return "–"
    sums, counts = np.bincount(number_of, came), np.bincount(number_of)
    draws = np.random.default_rng(1).integers(0, len(names), (2_000, len(names)))
    low, high = np.quantile(sums[draws].sum(axis=1) / counts[draws].sum(axis=1), (0.05, 0.95))
    return f"{100 * low:.1f}–{100 * high:.1f} %, {len(names)}"


def _in_fifth(values: Values, fifth: int) -> npt.NDArray[np.bool_]:
    return np.asarray(np.minimum((values * FIFTHS).astype(np.int64), FIFTHS - 1) == fifth)


def _percent(values: Values) -> str:
    return f"{100 * values.mean():.1f} %" if len(values) else "–"


def drawn(seeds: Sequence[int]) -> list[Judged]:
    """Return the jobs at rest of fleets, whose horizons are 6, 12 and 24 h in turn."""
    return [
        row
        for seed in seeds
        for row in judged(
            draw_return_fleet(seed), HORIZONS[seed % len(HORIZONS)], source=f"fleet {seed}"
        )
    ]


def recorded(data: Path) -> Iterator[str]:
    """Yield the tables of the recordings that are in a folder."""
    sets = (
        (
            "alibaba_genai_pods",
            "pods of a service, one day, looked at",
            genai_pods,
            (2.0, 4.0),
            1.0,
        ),
        *(
            ("serving", f"ServeGen clients, {title}", partial(read, tuned=tuned), *rests)
            for title, tuned in (("tuned half", True), ("half not looked at", False))
            for title, read, rests in (
                (title, servegen_clients, (HORIZONS, LONG_IDLE)),
                (f"{title}, first day", first_day_of_clients, ((2.0, 4.0), 1.0)),
            )
        ),
        (
            "facility",
            "six servers, no constant fitted on them",
            university_servers,
            HORIZONS,
            LONG_IDLE,
        ),
    )
    for folder, title, read, horizons, least in sets:
        yield from ("", f"## {folder}: {title}", "")
        if not (data / folder).is_dir():
            yield f"Not there: {folder} is missing from the folder of --data, {data}."
            continue
        work_set = read(data)
        rows = [row for ahead in horizons for row in judged(work_set, ahead, least=least)]
        yield f"Horizons {', '.join(f'{ahead:g} h' for ahead in horizons)}; rests from {least:g} h."
        yield ""
        yield from table(rows)


def report(data: Path, *, full: bool) -> Iterator[str]:
    """Yield the whole report."""
    yield f"`python -m benchmarks.returns --data DIR{' --full' * full}`"
    yield ""
    yield (
        f"Of every job that has rested for {LONG_IDLE:g} h, at any of the moments. Jobs of one "
        "fleet, and moments of one recorded job, are one source. Constants were fitted on the "
        "fleets of the first table, on seeds 2000 to 2399 and on one half of the clients, those of "
        "equation (3) on their first day too. The pods were looked at: all of theirs above 20 % "
        "are of one service in the last hours of its one day, a night that no history told of. "
        "They are one source, however many pods: no fifth shows more than how that night went. On "
        "the fleets of the second table nothing was chosen; they were run four times. On the other "
        "half of the clients and the servers no constant was fitted, but they were run several "
        "times between changes of the method and their figures seen; that only hours that began at "
        "rest count came of the servers, which are six: the highest fifth has three of them. "
        "Never at work: those that were not seen to work up to then; they are drawn as of the kind "
        "and team of jobs that do. Others: the share of similar jobs' rests of that length that "
        "ended in time. Of both the jobs, what was stated and what came."
    )
    titles = ("on which constants were fitted", "on which no constant was fitted")
    for title, seeds in zip(titles, (TUNED, JUDGED), strict=True):
        some = seeds if full else seeds[:50]
        yield from ("", f"## {len(some)} drawn fleets {title} (seeds from {some[0]})", "")
        yield from table(drawn(some))
    yield from recorded(data)


def main() -> None:
    """Print the report and, of full size, write it to benchmarks/results/returns.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--full", action="store_true", help="all seeds: 800 fleets, minutes")
    options = parser.parse_args()
    lines = list(report(options.data, full=options.full))
    print("\n".join(lines))
    if options.full:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
