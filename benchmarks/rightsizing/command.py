"""The jobs that a store has recorded, replayed under right-sizing rules, as a program."""

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dashboard.accounting.cost.prices import priced
from dashboard.cli.terminal.context import open_for_reading, progress_on_stderr, settings_of
from dashboard.cli.terminal.output import print_json, print_rows, say
from data.base.clock import utc_now
from data.base.errors import SettingsError, TrimtabError
from data.base.units import SLOT_SECONDS

if TYPE_CHECKING:
    from benchmarks.rightsizing.past import LimitRule
    from benchmarks.rightsizing.recorded_jobs import JobRecording
    from benchmarks.rightsizing.replay import ReplayFigures
    from dashboard.cycle.context import Progress

_COLUMNS = {
    "quantity": "effective_gpus, a job's work in GPUs, or memory_used_mib, its memory per GPU",
    "rule": "an oracle that knows the future, then rules that see the past",
    "jobs": "jobs with known demand, on models with a price",
    "cost_above_oracle_ratio": "cost above that of the oracle",
    "slack_ratio": "share of the limits that was not used",
    "over_samples_ratio": "share of samples above the limit",
    "over_jobs_ratio": "share of jobs that were ever above it",
    "changes_per_job_day": "changes of the limit",
    "later_changes_per_job_day": "changes without each job's first day",
    "held_hours": "limit x time, in GPU- or MiB-hours",
    "missing_hours": "demand above the limit x time, in the same",
    "cost": "rent, twenty rents for what was missing, ten minutes of rent a change, electricity",
    "energy_kwh": "idle power of the limits and 80 % of TDP for work, times PUE; none for memory",
}
_NOTHING = "No job reported demand or memory in this span: run `trimtab collect` first."


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a store and return the exit code: 1 error, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rightsizing",
        description=__doc__,
        epilog="\n".join(f"{name:27}{meaning}" for name, meaning in _COLUMNS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--settings", metavar="FILE", help="settings file (default trimtab.toml)")
    parser.add_argument("--store", metavar="URL", help="duckdb:///PATH or postgresql+psycopg://…")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument(
        "--days", type=float, default=7.0, help="days up to the newest sample (default 7)"
    )
    parser.add_argument(
        "--step", type=int, default=60, metavar="MINUTES", help="time between advices (default 60)"
    )
    parser.add_argument(
        "--forecast-every", type=float, default=12.0, metavar="HOURS", help="0: none (default 12)"
    )
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    try:
        return rightsizing(parser.parse_args(arguments))
    except TrimtabError as error:
        say(f"rightsizing: {error}", file=sys.stderr)
        return 2 if isinstance(error, SettingsError) else 1


def rightsizing(options: argparse.Namespace) -> int:
    """Print one row per quantity and rule: what its limits would have come to."""
    from benchmarks.rightsizing.recorded_jobs import job_recordings
    from data.catalogue.gpu_catalogue import load_gpu_catalogue

    _check(options)
    loaded = settings_of(options)
    with open_for_reading(loaded) as store:
        as_of = store.reader.latest_sample_at() or utc_now()
        history = store.reader.job_history(
            "",
            start=as_of - timedelta(days=options.days),
            end=as_of + timedelta(microseconds=1),
            slot_seconds=SLOT_SECONDS,
        )
        jobs = store.reader.jobs()
    seen = set(history["job_id"])
    recordings = job_recordings(
        history,
        [job for job in jobs if job.job_id in seen],
        catalogue=priced(load_gpu_catalogue(), loaded.settings, as_of),
        energy=loaded.settings.energy,
        step_minutes=options.step,
    )
    for name, reason in dict(
        left for recording in recordings for left in recording.left_out
    ).items():
        say(f"left out: {name}: {reason}", file=sys.stderr)
    with progress_on_stderr(options) as show:
        rows = [row for recording in recordings for row in _rows(recording, options, show)]
    if options.format == "json":
        print_json({"currency": loaded.settings.energy.currency, "rules": rows})
        return 0
    print_rows(rows, options.format, columns=tuple(_COLUMNS), empty=_NOTHING)
    return 0


def _check(options: argparse.Namespace) -> None:
    if not options.days > 0:
        raise SettingsError(f"--days {options.days} is no span", "Give more than 0 days")
    if options.step < 5 or options.step % 5:
        raise SettingsError(
            f"--step {options.step} does not hold whole 5-minute slots",
            "Give a multiple of 5 minutes",
        )
    if not options.forecast_every >= 0:
        raise SettingsError(
            f"--forecast-every {options.forecast_every} lies in the past",
            "Give hours, or 0 for no forecasts",
        )


def _rows(
    recording: "JobRecording", options: argparse.Namespace, show: "Progress"
) -> list[dict[str, Any]]:
    from benchmarks.rightsizing.replay import replay
    from benchmarks.rightsizing.step_forecasts import step_forecasts

    every = max(1, round(options.forecast_every * 60 / options.step))
    forecasts = (
        step_forecasts(
            recording.recorded,
            every,
            progress=lambda done, total: show(f"forecast {recording.quantity}", done, total),
        )
        if options.forecast_every > 0
        else []
    )
    policies = _policies(recording, forecasting=bool(forecasts))
    figures = []
    for number, policy in enumerate(policies, start=1):
        found = replay(recording.recorded, policy, charges=recording.charges, forecasts=forecasts)
        figures.append(found.figures())
        show(f"replay {recording.quantity}", number, len(policies))
    return [_row(recording, each, figures[0].cost) for each in figures]


def _policies(recording: "JobRecording", *, forecasting: bool) -> "list[LimitRule]":
    """Return the oracle, the peers and ours, in the order of the table."""
    from benchmarks.rightsizing.all_policies import own_policies, peer_policies
    from benchmarks.rightsizing.oracle import oracle_of

    recorded, memory = recording.recorded, recording.quantity == "memory_used_mib"
    oracle = oracle_of(
        recorded.usage,
        recorded.levels,
        charges=recording.charges,
        sample_hours=recorded.sample_hours,
        samples_per_step=recorded.samples_per_step,
        first_step=recorded.first_step,
    )
    # The autoscaler's first buckets: a hundredth of a core, and ten million bytes.
    first = 1e7 / 2**20 if memory else 0.01
    ours = own_policies(recording.charges, memory=memory, forecasting=forecasting)
    return [oracle, *peer_policies(first), *ours]


def _row(recording: "JobRecording", figures: "ReplayFigures", best: float) -> dict[str, Any]:
    return {
        "quantity": recording.quantity,
        "unit": recording.unit,
        "rule": figures.name,
        "jobs": figures.jobs,
        "cost_above_oracle_ratio": figures.cost / best - 1 if best > 0 else None,
        "slack_ratio": figures.slack_ratio,
        "over_samples_ratio": figures.over_samples_ratio,
        "over_jobs_ratio": figures.over_jobs_ratio,
        "changes_per_job_day": figures.changes_per_job_day,
        "later_changes_per_job_day": figures.later_changes_per_job_day,
        "held_hours": figures.held_hours,
        "missing_hours": figures.missing_hours,
        "cost": figures.cost,
        "energy_kwh": figures.energy_kwh if recording.energy_known else None,
    }
