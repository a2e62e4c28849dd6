"""`trimtab report weekly`."""

import argparse
import sys
from pathlib import Path

from dashboard.cli.cycle_commands import PARTIAL
from dashboard.cli.world import open_for_reading, settings_of
from dashboard.reports.render_report import render_html, render_json, render_markdown
from dashboard.reports.week import Week, last_whole_week
from dashboard.reports.weekly_report import WeeklyReport, make_weekly_report
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.clock import utc_now
from data.errors import TrimtabError


def weekly(options: argparse.Namespace) -> int:
    """Write the report of the 168 hours before now, or before the newest sample of a recording.

    With `--last-week`, of the last whole week of the calendar that the settings name.
    """
    loaded = settings_of(options)
    settings = loaded.settings
    with open_for_reading(loaded) as store:
        latest = store.reader.latest_sample_at()
        now = options.now or min(utc_now(), latest or utc_now())
        week = (
            last_whole_week(now, settings.report)
            if options.last_week
            else Week(end=now, zone=settings.report.timezone)
        )
        report = make_weekly_report(
            store.reader,
            week=week,
            settings=settings,
            carbon=load_carbon_table().get(settings.energy.region),
            catalogue=load_gpu_catalogue(),
        )
    body = _rendered(report, options.format)
    if options.out is None:
        sys.stdout.buffer.write(body)
    else:
        _write(body, Path(options.out))
    return 0 if report.coverage_ratio is not None else PARTIAL


def _rendered(report: WeeklyReport, form: str) -> bytes:
    if form == "pdf":
        # Deferred: fonts and page layout take half a second that no other form needs.
        from dashboard.reports.render_pdf import render_pdf

        return render_pdf(report)
    renderers = {"html": render_html, "md": render_markdown, "json": render_json}
    return renderers[form](report).encode()


def _write(body: bytes, path: Path) -> None:
    try:
        path.write_bytes(body)
    except OSError as error:
        raise TrimtabError(
            f"cannot write the report to {path}: {error.strerror}",
            "Give --out a path in a folder that exists and can be written.",
        ) from error
    print(f"{path}: {len(body):,} bytes", file=sys.stderr)
