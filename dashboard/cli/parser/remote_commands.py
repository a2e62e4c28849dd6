"""Commands with `--server`: the rows and documents of the API, printed as of a store."""

import argparse
import importlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn
from urllib.parse import quote

from dashboard.api.http.pagination import PageOfRows
from dashboard.cli.show.samples_command import remote_samples
from dashboard.cli.terminal.option_types import JOB_FIELDS
from dashboard.cli.terminal.output import print_json
from dashboard.cli.terminal.remote_server import RemoteServer
from dashboard.decisions.finding_filter import WORDS
from dashboard.resources.listings import LISTINGS
from dashboard.resources.rows import FindingRow
from data.base.errors import SettingsError


def run_remote(
    options: argparse.Namespace, server: RemoteServer, module: str, function: str
) -> int:
    """Run a command on a server. Errors: SettingsError for one that needs the store itself."""
    if "decision" in vars(options):  # asks the server by `context.ask`
        if vars(options).get("matching") is not None:
            _not_there("--matching", "by the API's /dismissals")
        return int(getattr(importlib.import_module(f"dashboard.cli.{module}"), function)(options))
    command = _OTHERS.get((module, function))
    if command is None:
        _not_there("this command", "on the host of the store")
    return command(options, server)


def _not_there(what: str, where: str) -> NoReturn:
    raise SettingsError(
        f"{what} is not to be had with --server", f"Do it {where}, without --server."
    )


def _refuse(options: argparse.Namespace, *names: str) -> None:
    """Refuse options that the API does not have. Errors: SettingsError."""
    for name in names:
        if vars(options).get(name):
            _not_there(f"--{name.replace('_', '-')}", "on the host of the store")


def _list(options: argparse.Namespace, server: RemoteServer) -> int:
    from dashboard.cli.show.list_commands import print_listing

    name = options.listed
    rows: list[Any] = server.rows(name, LISTINGS[name].kind)
    return print_listing(options, rows, empty=f"The server knows no {name}.")


def _jobs(options: argparse.Namespace, server: RemoteServer) -> int:
    _refuse(options, *JOB_FIELDS, "search", "running", "use", "sort")
    options.listed = "applications" if options.by == "application" else "jobs"
    return _list(options, server)


def _findings(options: argparse.Namespace, server: RemoteServer) -> int:
    from dashboard.cli.decide.finding_commands import print_findings

    _refuse(options, "watch")
    values = vars(options)
    names = ("state", "kind", "risk", "sort", "all", *WORDS)
    query = {name: values[name] for name in names if values.get(name)}
    rows: list[FindingRow] = server.rows("findings", FindingRow, query)
    hidden = (
        0 if rows else server.one("findings?state=resolved&limit=1", PageOfRows[FindingRow]).total
    )
    print_findings(rows, options.format, hidden=hidden)
    return 0


def _finding(options: argparse.Namespace, server: RemoteServer) -> int:
    from dashboard.cli.decide.finding_commands import print_finding
    from dashboard.resources.whole_finding import WholeFinding

    answer = server.one(f"findings/{quote(options.id, safe='')}", WholeFinding)
    print_finding(answer, options.format)
    return 0


Query = Callable[[argparse.Namespace], dict[str, Any]]


def _document(
    path: str, query: Query, *refused: str
) -> Callable[[argparse.Namespace, RemoteServer], int]:
    """Return the command that prints a document of the API, which is JSON."""

    def command(options: argparse.Namespace, server: RemoteServer) -> int:
        _refuse(options, *refused)
        if options.format != "json":
            raise SettingsError(
                f"--format {options.format} of it is not to be had with --server",
                "Give --format json.",
            )
        values = {name: _text(value) for name, value in query(options).items()}
        query_of = {name: value for name, value in values.items() if value is not None}
        print_json(server.one(path, dict[str, Any] | list[Any], query_of))
        return 0

    return command


def _text(value: Any) -> Any:
    """Return the value of a parameter as it stands in an address."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat()
    return ",".join(value) if isinstance(value, list | tuple) else value


def _nothing(_options: argparse.Namespace) -> dict[str, Any]:
    return {}


def _range(options: argparse.Namespace) -> dict[str, Any]:
    return {"by": options.by, "every": options.every, "from": options.since, "to": options.until}


def _saved(options: argparse.Namespace) -> dict[str, Any]:
    if options.by == "change":
        _not_there("--by change", "by finding, day or namespace")
    return {"by": options.by}


_OTHERS: Mapping[tuple[str, str], Callable[[argparse.Namespace, RemoteServer], int]] = {
    ("show.list_commands", "jobs"): _jobs,
    ("show.list_commands", "list_"): _list,
    ("decide.finding_commands", "list_"): _findings,
    ("decide.finding_commands", "show"): _finding,
    ("decide.finding_commands", "idle"): _document("idle", _nothing),
    ("show.plan_command", "plan"): _document("plan", _nothing, "what_if"),
    ("show.memory_command", "memory"): _document("memory", _nothing),
    ("show.samples_command", "samples"): remote_samples,
    ("show.forecast_command", "forecast"): _document(
        "forecasts", lambda options: {"by": options.by, "points": options.points}, "backtest"
    ),
    ("show.energy_command", "energy"): _document("energy", _range),
    ("show.statement_command", "statement"): _document(
        "statement", lambda options: {**_range(options), "budgets": options.budgets}, "out"
    ),
    ("show.savings_command", "savings"): _document("savings/to-date", _saved),
    ("show.report_command", "weekly"): _document(
        "reports/weekly",
        lambda options: {"to": options.now, "last_week": options.last_week},
        "out", "send", "check",
    ),
}  # fmt: skip
