"""`trimtab import`: recorded telemetry into the store."""

import argparse
import sys
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from collectors.readings.exposition_text import read_dcgm_text, read_prometheus_json
from collectors.trace.files import Trace, load_map
from dashboard.cli.terminal.context import progress_on_stderr, settings_of
from dashboard.cli.terminal.output import say
from data.base.clock import utc_now
from data.base.counts import count_text
from data.base.errors import SettingsError, scrub
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.energy_integration import MAX_GAP_SECONDS
from data.settings.all_settings import Settings
from data.store import open_store
from data.store.facts.fact_writer import SampleCounts

PARTIAL = 3
"""Most rows, or most readings of a column, were lost."""


def _recording(path: Path, options: argparse.Namespace) -> Collected:
    catalogue = load_gpu_catalogue()
    if options.kind == "dcgm-text":
        return read_dcgm_text(path, options.at or utc_now(), catalogue)
    return read_prometheus_json(path, catalogue)


def import_(options: argparse.Namespace) -> int:
    """Read one file, keep its samples and jobs, print what was kept and what was dropped."""
    settings = settings_of(options).settings
    path = Path(options.path)
    if not path.is_file():
        raise SettingsError(f"{options.path!r} is no file", "Give the path of a recording.")
    with progress_on_stderr(options) as progress:
        if options.kind != "trace":
            collected = _recording(path, options)
            sums, last = _keep(settings, [collected], progress)
            dropped = dict(collected.report.dropped)
            return _report(sums, last, len(collected.samples), rows_lost={}, refused=dropped)
        if not options.map:
            raise SettingsError(
                f"{options.path} is a trace and needs a column map",
                "Give --map MAP.toml; docs/examples/alibaba-genai.toml is one.",
            )
        trace = Trace(path, load_map(Path(options.map)), now=utc_now())
        sums, last = _keep(settings, trace.pieces(), progress)
    lost, refused = dict(trace.dropped_rows), dict(trace.refused_readings)
    code = _report(sums, last, trace.rows, rows_lost=lost, refused=refused)
    if trace.without_job:
        words = ", ".join(scrub(repr(word), limit=20) for word in sorted(trace.absent_jobs)[:5])
        note = f" ({words})" if words else ""
        say(f"{trace.without_job} rows name no job{note}: nobody is said to hold their GPUs then.")
    for target in trace.mostly_refused():
        code = PARTIAL
        say(f"Most readings of {target} were refused and are unknown.", file=sys.stderr)
    if trace.mostly_apart:
        say(
            f"Most readings of a GPU are more than {MAX_GAP_SECONDS / 60:g} min apart: nothing "
            "is known of the time between them, so energy, hours and cost stay unknown there.",
            file=sys.stderr,
        )
    for target in trace.without_values():
        say(f"No row has a value of {target}: it is unknown.", file=sys.stderr)
    return code


def _keep(
    settings: Settings, pieces: Iterable[Collected], progress: Callable[[str, int, int], None]
) -> tuple[SampleCounts, Collected]:
    """Keep all pieces or none; return what was kept and the last of them."""
    progress("import", 0, 2)
    waiting = iter(pieces)
    last = [next(waiting)]  # a file that cannot be read makes no store

    def noted() -> Iterable[Collected]:
        for piece in chain(list(last), waiting):
            last[0] = piece
            yield piece

    progress("import", 1, 2)
    with open_store(settings.store.url) as store:
        sums = store.keep_pieces(noted())
    progress("import", 2, 2)
    return sums, last[0]


def _report(
    sums: SampleCounts,
    last: Collected,
    rows: int,
    *,
    rows_lost: dict[str, int],
    refused: dict[str, int],
) -> int:
    """Print the fate of every row; return 3 when most are lost."""
    lost = dict(rows_lost) | ({"older-than-retention": sums.late} if sums.late else {})
    repeated = rows - sums.new - sum(lost.values())
    say(
        f"{count_text(sums.new, 'new sample')} of {count_text(rows, 'row')} and "
        f"{count_text(len(last.jobs), 'job')} kept from "
        f"{last.report.source}; repeated: {repeated}; dropped: {_counted(lost)}."
    )
    if repeated:
        say("Where a GPU and time are told more than once, the larger readings count.")
    if refused:
        say(f"Readings refused, each unknown now: {_counted(refused)}.")
    for warning in last.report.warnings:
        say(warning, file=sys.stderr)
    if last.jobs and last.jobs[0].assumed:
        assumed = ", ".join(f"{name} = {value}" for name, value in last.jobs[0].assumed)
        say(f"Assumed, not in the file: {assumed}.")
    if sums.late and sums.kept_since is not None:
        say(
            f"{sums.late} rows are from before {sums.kept_since:%Y-%m-%d %H:%M} UTC: what is older "
            "than retention.raw_days is kept as totals only, which cannot take new samples. "
            "Import the trace into a store of its own: --store duckdb:///trace.duckdb.",
            file=sys.stderr,
        )
    if 2 * sum(lost.values()) <= rows:
        return 0
    say(f"Most rows of the trace were lost: {_counted(lost)}.", file=sys.stderr)
    return PARTIAL


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())) or "none"
