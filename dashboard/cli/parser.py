"""The commands and their options. Nothing heavy is imported before a command runs."""

import argparse
import importlib
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version


def _deferred(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        command = getattr(importlib.import_module(f"dashboard.cli.{module}"), function)
        return int(command(options))

    return run


def utc_time(text: str) -> datetime:
    """Read an ISO 8601 time with its zone, such as 2026-01-02T00:00:00Z, into UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no ISO 8601 time such as 2026-01-02T00:00:00Z"
        ) from None
    if at.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} lacks its zone; add Z for UTC")
    return at.astimezone(UTC)


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    target: tuple[str, str],
    summary: str,
    *,
    lists: bool = False,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(run=_deferred(*target))
    if lists:
        parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    return parser


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prometheus", metavar="URL", help="read DCGM metrics from this address")
    parser.add_argument("--lookback", metavar="HOURS", help="how far the first collection reaches")
    parser.add_argument(
        "--now", type=utc_time, metavar="TIME", help="plan as of this time (ISO, UTC)"
    )


def _add_stages(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    demo = _command(
        commands,
        "demo",
        ("serve_commands", "demo"),
        "seeded fleet, no cluster, no GPU: a full cycle, then the dashboard",
    )
    demo.add_argument("--port", help="port of the dashboard (default 8501)")
    demo.add_argument("--days", type=int, default=14, help="days of history (default 14)")
    demo.add_argument("--once", action="store_true", help="run the cycle, do not serve")
    serve = _command(
        commands,
        "serve",
        ("serve_commands", "serve"),
        "dashboard, cycle thread and health endpoints in one process",
    )
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", help="port to listen on")
    serve.add_argument("--prometheus", metavar="URL", help="read DCGM metrics from this address")
    fleet = _command(
        commands,
        "fleet",
        ("serve_commands", "fleet"),
        "serve the simulated fleet as DCGM exposition text on /metrics",
    )
    fleet.add_argument("--host", default="127.0.0.1")
    fleet.add_argument("--port", type=int, default=9400)
    fleet.add_argument("--seed", type=int, default=7)
    fleet.add_argument("--nodes", type=int, default=8)
    cycle = _command(
        commands,
        "cycle",
        ("cycle_commands", "cycle"),
        "one cycle: collect, forecast, plan, recommend",
    )
    cycle.add_argument("--format", choices=("table", "json"), default="table")
    _add_source_options(cycle)
    collect = _command(
        commands,
        "collect",
        ("cycle_commands", "collect"),
        "collect from the configured sources into the store",
        lists=True,
    )
    _add_source_options(collect)
    forecast = _command(
        commands,
        "forecast",
        ("forecast_command", "forecast"),
        "the forecasts of the latest cycle, with their backtest",
        lists=True,
    )
    forecast.add_argument(
        "--by", choices=("job", "group"), default="job", help="group: namespaces, models, fleet"
    )
    forecast.add_argument(
        "--backtest",
        action="store_true",
        help="ask every model at past moments of the stored series and compare them",
    )
    _command(
        commands,
        "plan",
        ("list_commands", "plan"),
        "the plan of the latest cycle, with its bound and gap",
        lists=True,
    )


def _add_import(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands, "import", ("import_command", "import_"), "recorded telemetry into the store"
    )
    parser.add_argument("path", metavar="PATH")
    parser.add_argument("--map", metavar="MAP.toml", help="column map of a Parquet or CSV trace")
    parser.add_argument(
        "--kind", choices=("trace", "dcgm-text", "prometheus-json"), default="trace"
    )
    parser.add_argument("--at", type=utc_time, metavar="TIME", help="time of a dcgm-text file")


def _add_recommendations(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("recommendations", help="list, show, approve, reject, write")
    parser.set_defaults(run=_deferred("recommendation_commands", "list_"), format="table")
    actions = parser.add_subparsers(metavar="ACTION")
    listing = _command(
        actions,
        "list",
        ("recommendation_commands", "list_"),
        "what is proposed and what became of it",
        lists=True,
    )
    listing.add_argument("--state", help="only this state, such as proposed")
    show = _command(
        actions,
        "show",
        ("recommendation_commands", "show"),
        "one recommendation whole: why, evidence, change",
    )
    show.add_argument("id")
    show.add_argument("--format", choices=("table", "json"), default="table")
    for name, summary in (
        ("approve", "approve exactly this recommendation"),
        ("reject", "reject it"),
        ("apply", "write the change file of an approved one; touches no cluster"),
    ):
        action = _command(actions, name, ("recommendation_commands", name), summary)
        action.add_argument("id")
        action.add_argument("--by", required=True, metavar="NAME", help="who decides")
        action.add_argument("--comment", default="", help="why")


def _add_lists(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    for name, summary in (
        ("jobs", "the jobs known now"),
        ("gpus", "the GPUs known now"),
        ("nodes", "the nodes as their schedulers describe them"),
        ("sources", "the sources and how the last cycle fared with them"),
        ("settings", "the settings in force and where each came from, secrets redacted"),
        ("doctor", "what is missing for every source and target, and the fix"),
    ):
        module = "doctor_command" if name == "doctor" else "list_commands"
        _command(commands, name, (module, name), summary, lists=True)
    report = commands.add_parser("report", help="the weekly report")
    kinds = report.add_subparsers(metavar="KIND", required=True)
    weekly = _command(kinds, "weekly", ("report_command", "weekly"), "the last seven days")
    weekly.add_argument("--out", metavar="FILE", help="write here instead of stdout")
    weekly.add_argument("--format", choices=("html", "md", "json"), default="md")
    weekly.add_argument("--now", type=utc_time, metavar="TIME", help="end of the week (ISO, UTC)")
    audit = commands.add_parser("audit", help="the append-only record")
    audit.set_defaults(run=_deferred("list_commands", "audit_list"), format="table")
    actions = audit.add_subparsers(metavar="ACTION")
    _command(actions, "list", ("list_commands", "audit_list"), "every entry", lists=True)
    _command(actions, "verify", ("list_commands", "audit_verify"), "check the hash chain")


def _add_simulate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    simulate = commands.add_parser("simulate", help="replay what was recorded under other rules")
    kinds = simulate.add_subparsers(metavar="WHAT", required=True)
    rightsizing = _command(
        kinds,
        "rightsizing",
        ("simulate_command", "rightsizing"),
        "recorded demand and memory of jobs under right-sizing rules, charged on what came",
        lists=True,
    )
    rightsizing.add_argument(
        "--days", type=float, default=7.0, help="days up to the newest sample (default 7)"
    )
    rightsizing.add_argument(
        "--step", type=int, default=60, metavar="MINUTES", help="time between advices (default 60)"
    )
    rightsizing.add_argument(
        "--forecast-every", type=float, default=12.0, metavar="HOURS", help="0: none (default 12)"
    )


def build_parser() -> argparse.ArgumentParser:
    """Give the parser of `trimtab`."""
    parser = argparse.ArgumentParser(
        prog="trimtab",
        description="Watch a GPU fleet, forecast what every job needs, plan allocations over time, "
        "and trim the fleet once a person approves.",
    )
    parser.add_argument("--settings", metavar="FILE", help="settings file (default trimtab.toml)")
    parser.add_argument("--store", metavar="URL", help="store address, duckdb:///PATH")
    parser.add_argument("--debug", action="store_true", help="tracebacks and debug logs")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument("--version", action="version", version=f"trimtab {version('trimtab')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_stages(commands)
    _add_import(commands)
    _add_lists(commands)
    _add_recommendations(commands)
    _add_simulate(commands)
    return parser
