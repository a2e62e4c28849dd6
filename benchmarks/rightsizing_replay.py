"""Right-sizing rules replayed on recorded demand: limits from the past only, charged on what came.

`python -m benchmarks.rightsizing_replay --data DIR [--full] [--tune]`. Slack is what was held and
not used, over-limit samples and jobs are those above their limit, changes those above 2 % (pods) or
of a whole GPU (clusters). KRR is Kubernetes Resource Recommender's `simple` strategy, VPA the
Vertical Pod Autoscaler's target. `--tune` searches our settings anew on the tuned half of the pods.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks._rightsizing_peaks import peak_tables
from benchmarks._rightsizing_sets import (
    ReplaySet,
    helios_cluster,
    philly_clusters,
    pods_memory,
    pods_utilization,
)
from benchmarks._rightsizing_tuning import tuned
from benchmarks.rightsizing.oracle import oracle_of
from benchmarks.rightsizing.past import LimitRule
from benchmarks.rightsizing.replay import Replayed, ReplayFigures, replay

RESULTS = Path(__file__).parent / "results" / "rightsizing_replay.md"
MAX_CHANGES = 0.2


def outcomes(one: ReplaySet) -> list[Replayed]:
    """Return every rule's replay, the oracle first."""
    recorded = one.recorded
    oracle = oracle_of(
        recorded.usage,
        recorded.levels,
        charges=one.charges,
        sample_hours=recorded.sample_hours,
        samples_per_step=recorded.samples_per_step,
        first_step=recorded.first_step,
    )
    policies: list[LimitRule] = [oracle, *one.policies]
    return [
        replay(recorded, policy, charges=one.charges, forecasts=one.forecasts)
        for policy in policies
    ]


def percent(value: float | None, digits: int = 1) -> str:
    """Return a ratio in percent, a dash for none."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def count(value: float | None) -> str:
    """Return a number of changes, a dash for none."""
    return "–" if value is None else f"{value:.2f}"


def table(one: ReplaySet, found: Sequence[Replayed]) -> list[str]:
    """Return a set's table: all jobs, then slack / over / jobs over of the half not tuned on."""
    figures = [each.figures() for each in found]
    unseen = [each.figures(~one.tuned_on) for each in found]
    best = figures[0].cost
    step = one.recorded.sample_hours * one.recorded.samples_per_step
    days = (one.recorded.steps - one.recorded.first_step) * step / 24
    lines = [
        "",
        f"## {one.name}",
        "",
        (
            f"{figures[0].jobs} jobs over {days:.1f} days, advice every {60 * step:.0f} min, "
            f"limits in {one.unit}; {int((~one.tuned_on).sum())} in the other half."
        ),
        "",
        (
            "| rule | cost above the oracle | slack | over samples | over jobs | changes / job-day "
            f"| after day one | {one.unit}-hours held | short | money | kWh "
            "| the other half: slack | over | jobs |"
        ),
        "|---|" + "---:|" * 13,
    ]
    lines += [
        f"| {all_.name} | {100 * (all_.cost / best - 1):+.1f} % | {percent(all_.slack_ratio)} "
        f"| {percent(all_.over_samples_ratio, 2)} | {percent(all_.over_jobs_ratio)} "
        f"| {count(all_.changes_per_job_day)} | {count(all_.later_changes_per_job_day)} "
        f"| {all_.held_hours:,.0f} | {all_.missing_hours:,.0f} | {all_.cost:,.0f} "
        f"| {all_.energy_kwh:,.0f} | {percent(other.slack_ratio)} "
        f"| {percent(other.over_samples_ratio, 2)} | {percent(other.over_jobs_ratio)} |"
        for all_, other in zip(figures, unseen, strict=True)
    ]
    return lines


def _three(one: ReplayFigures) -> tuple[float, float, float]:
    return (
        one.slack_ratio or 0.0,
        one.over_samples_ratio or 0.0,
        one.over_jobs_ratio or 0.0,
    )


def verdicts(one: ReplaySet, found: Sequence[Replayed]) -> list[str]:
    """Return the lines of the yardstick: ours against a peer on all three at once."""
    by_name = {each.name: each for each in found}
    lines = []
    for peer, ours in one.peers:
        for words, jobs in (("all", None), ("the other half", ~one.tuned_on)):
            theirs, mine = by_name[peer].figures(jobs), by_name[ours].figures(jobs)
            better = [a <= b for a, b in zip(_three(mine), _three(theirs), strict=True)]
            said = "met" if all(better) else f"missed ({sum(better)} of 3)"
            lines.append(
                f"* {one.name}, {words}: {ours} against {peer}: slack "
                f"{percent(mine.slack_ratio)} / {percent(theirs.slack_ratio)}, over samples "
                f"{percent(mine.over_samples_ratio, 2)} / {percent(theirs.over_samples_ratio, 2)}, "
                f"over jobs {percent(mine.over_jobs_ratio)} / {percent(theirs.over_jobs_ratio)}: "
                f"{said}"
            )
    for each in found:
        if each.name.startswith("Trimtab"):
            figures = each.figures()
            later = figures.later_changes_per_job_day
            shown = figures.changes_per_job_day if later is None else later
            when = "in its only day" if later is None else "after the first day"
            met = "met" if (shown or 0.0) <= MAX_CHANGES else "missed"
            lines.append(
                f"* {one.name}, {each.name}: {count(shown)} changes per job-day {when}, "
                f"<= {MAX_CHANGES}: {met}"
            )
    return lines


def main() -> None:
    """Print the tables and write them to benchmarks/results/rightsizing_replay.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="forecasts every 3 h instead of 12")
    parser.add_argument("--tune", action="store_true", help="search our settings, print the best")
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    options = parser.parse_args()
    data = Path(options.data)
    if options.tune:
        for replay_set in (pods_memory(data), pods_utilization(data)):
            print("\n".join(tuned(replay_set)))
        return
    every = 3 if options.full else 12
    lines = [
        "Recorded demand replayed under right-sizing rules; every rule sees the past only, the",
        f"oracle everything. Forecasts: the mix, every {every} h. See docs/what-if.md.",
    ]
    said = []
    for replay_set in (
        pods_memory(data),
        pods_utilization(data),
        philly_clusters(data, every),
        helios_cluster(data, every),
    ):
        found = outcomes(replay_set)
        lines += table(replay_set, found)
        said += verdicts(replay_set, found)
    peak_lines, peak_said = peak_tables(data)
    text = "\n".join([*lines, *peak_lines, "", *said, *peak_said]) + "\n"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
