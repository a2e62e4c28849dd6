"""`trimtab report weekly`."""

import argparse
import sys
from pathlib import Path

from dashboard.cli.cycle_commands import PARTIAL
from dashboard.cli.world import open_for_reading, settings_of
from dashboard.reports.render_report import render_html, render_json, render_markdown
from dashboard.reports.weekly_report import make_weekly_report
from data.catalogue.carbon_table import load_carbon_table
from data.clock import utc_now
from data.errors import TrimtabError

_RENDERERS = {"html": render_html, "md": render_markdown, "json": render_json}


def weekly(options: argparse.Namespace) -> int:
    """Write the report of the 168 hours before now, or before the newest sample of a recording."""
    loaded = settings_of(options)
    with open_for_reading(loaded) as store:
        latest = store.reader.latest_sample_at()
        now = options.now or min(utc_now(), latest or utc_now())
        report = make_weekly_report(
            store.reader,
            end=now,
            settings=loaded.settings,
            carbon=load_carbon_table().get(loaded.settings.energy.region),
        )
    text = _RENDERERS[options.format](report)
    if options.out is None:
        sys.stdout.write(text)
    else:
        try:
            Path(options.out).write_text(text, encoding="utf-8")
        except OSError as error:
            raise TrimtabError(
                f"cannot write the report to {options.out}: {error.strerror}",
                "Give --out a path in a folder that exists and can be written.",
            ) from error
        print(f"{options.out}: {len(text.encode()):,} bytes", file=sys.stderr)
    return 0 if report.coverage_ratio is not None else PARTIAL
