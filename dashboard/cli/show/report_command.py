"""`trimtab report weekly`."""

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path

from dashboard.cli.terminal.ask import print_document
from dashboard.cli.terminal.context import asks_a_server, open_for_reading, settings_of
from dashboard.cli.terminal.output import PARTIAL, print_rows, say
from dashboard.cli.terminal.remote_server import refuse_with_server
from dashboard.reports.render.html_report import render_html, render_json, render_markdown
from dashboard.reports.render.pdf_file import render_pdf
from dashboard.reports.week.editions import recipients
from dashboard.reports.week.week import last_whole_week
from dashboard.reports.week.weekly_report import WeeklyReport, asked_report
from data.base.clock import utc_now
from data.base.errors import SettingsError, TrimtabError
from data.settings.load import LoadedSettings
from data.store import open_store


def weekly(options: argparse.Namespace) -> int:
    """Write the report of the 168 hours before now, or before the newest sample of a recording.

    With `--last-week`, of the last whole week of the calendar that the settings name, from midnight
    to midnight; with `--send`, to the recipients of the settings.
    """
    if asks_a_server(options):
        refuse_with_server(options, "out", "send", "check")
        when = {"end": options.now, "last_week": options.last_week}
        return print_document(options, "reports/weekly", **when)
    loaded = settings_of(options)
    settings = loaded.settings
    if options.send or options.check:
        return _send(options, loaded)
    with open_for_reading(loaded) as store:
        report = asked_report(store.reader, settings, end=options.now, last_week=options.last_week)
    body = _rendered(report, options.format)
    if options.out is None:
        sys.stdout.buffer.write(body)
    else:
        write_whole(body, Path(options.out))
    return 0 if report.coverage_ratio is not None else PARTIAL


def _rendered(report: WeeklyReport, form: str) -> bytes:
    if form == "pdf":
        return render_pdf(report)
    renderers = {"html": render_html, "md": render_markdown, "json": render_json}
    return renderers[form](report).encode()


def write_whole(body: bytes, path: Path) -> None:
    """Write a file whole or not at all, so that an earlier one stays if this process dies."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(body)  # a pipe or a device cannot be replaced
        else:
            temporary.write_bytes(body)
            temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise TrimtabError(
            f"cannot write {path}: {error.strerror}",
            "Give --out a path in a folder that exists and can be written.",
        ) from error
    print(f"{path}: {len(body):,} bytes", file=sys.stderr)


def _send(options: argparse.Namespace, loaded: LoadedSettings) -> int:
    """File the editions of the last whole week and send them; with `--check` only say which."""
    from dashboard.notify.deliver import Notifier
    from dashboard.notify.report_delivery import ReportRounds

    settings, now = loaded.settings, options.now or utc_now()
    if not recipients(settings.report):
        raise SettingsError(
            "nobody is named to get the report",
            "Set report.mail_to, report.teams or report.owners.",
        )
    with open_store(settings.store.url) as store:
        rounds = ReportRounds(store=store, settings=lambda: settings, clock=lambda: now)
        planned = rounds.planned(last_whole_week(now, settings.report))
        rows = [
            {
                "week": entry.week.name,
                "edition": entry.edition.key,
                "to": " ".join(entry.to),
                "webhook": "yes" if entry.webhook else "",
                "findings": len(entry.findings),
                "held back": entry.hold_reason,
            }
            for entry in planned
        ]
        if not options.check:
            for entry in planned:
                rounds.file(entry, now)
            notifier = Notifier(store=store, settings=lambda: settings)
            while notifier.deliver_once():
                pass
        waiting = store.outbox.waiting()
    print_rows(
        rows,
        "json" if options.format == "json" else "table",
        columns=("week", "edition", "to", "webhook", "findings", "held back"),
        empty="",
    )
    for problem in waiting:
        say(f"not sent yet, tried again later: {problem}", file=sys.stderr)
    return PARTIAL if waiting and not options.check else 0
