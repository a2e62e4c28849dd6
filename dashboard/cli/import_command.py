"""`trimtab import`: recorded telemetry into the store."""

import argparse
from pathlib import Path

from collectors.exposition_text import read_dcgm_text, read_prometheus_json
from collectors.trace_files import load_map, read_trace
from dashboard.cli.output import say
from dashboard.cli.world import progress_on_stderr, settings_of
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.clock import utc_now
from data.collected import Collected
from data.errors import SettingsError
from data.store import open_store


def _read(options: argparse.Namespace) -> Collected:
    path = Path(options.path)
    if not path.is_file():
        raise SettingsError(f"{options.path!r} is no file", "Give the path of a recording.")
    catalogue = load_gpu_catalogue()
    if options.kind == "dcgm-text":
        return read_dcgm_text(path, options.at or utc_now(), catalogue)
    if options.kind == "prometheus-json":
        return read_prometheus_json(path, catalogue)
    if not options.map:
        raise SettingsError(
            f"{options.path} is a trace and needs a column map",
            "Give --map MAP.toml; docs/examples/alibaba-genai.toml is one.",
        )
    return read_trace(path, load_map(Path(options.map)))


def import_(options: argparse.Namespace) -> int:
    """Read one file, keep its samples and jobs, print what was kept and what was dropped."""
    loaded = settings_of(options)
    with progress_on_stderr(options) as progress:
        progress("import", 0, 2)
        collected = _read(options)
        progress("import", 1, 2)
        with open_store(loaded.settings.store.url) as store:
            rows = store.keep(collected)
        progress("import", 2, 2)
    report = collected.report
    dropped = ", ".join(f"{count} {reason}" for reason, count in report.dropped) or "none"
    say(
        f"{rows} new samples of {len(collected.samples)} and {len(collected.jobs)} jobs kept from "
        f"{report.source}; dropped: {dropped}."
    )
    if collected.jobs and collected.jobs[0].assumed:
        assumed = ", ".join(f"{name} = {value}" for name, value in collected.jobs[0].assumed)
        say(f"Assumed, not in the file: {assumed}.")
    return 0
