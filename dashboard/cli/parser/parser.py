"""The commands and their options. Nothing heavy is imported before a command runs."""

import argparse
import difflib
import re
from importlib.metadata import version
from typing import NoReturn

from dashboard.cli.parser.add_command import add_command, add_selectors, deferred
from dashboard.cli.parser.command_options import (
    add_energy_options,
    add_estimate_options,
    add_job_options,
    add_plan_options,
    add_samples,
    add_serving,
    add_statement,
)
from dashboard.cli.parser.decision_options import add_findings, add_tokens
from dashboard.cli.parser.examples import examples_of
from dashboard.cli.parser.former_words import CommandWords
from dashboard.cli.parser.store_options import add_serve_options, add_store
from dashboard.cli.terminal.log_format import FORMATS, LEVELS
from dashboard.cli.terminal.option_types import utc_time

_NO_CHOICE = re.compile(
    r"invalid choice: (['\"])(?P<given>.*)\1 \(choose from (?P<known>.*)\)$", re.DOTALL
)
_LATE = re.compile(
    r"unrecognized arguments: "
    r"(--(?:settings|store|server|token-file|debug|quiet|log-level|log-format))\b"
)
_WORD = re.compile(r"[\w.-]+")


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prometheus", metavar="URL", help="read DCGM metrics from this address")
    parser.add_argument("--lookback", metavar="HOURS", help="how far the first collection reaches")
    parser.add_argument(
        "--now", type=utc_time, metavar="TIME", help="plan as of this time (ISO, UTC)"
    )


def _add_stages(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    about = "a simulated fleet to try everything on: no cluster, no GPU"
    demo = add_command(commands, "demo", ("operate.demo_command", "demo"), about)
    demo.set_defaults(keeps_running=True)
    demo.add_argument("--port", help="port of the dashboard (default 8501)")
    demo.add_argument("--days", type=int, default=7, help="days of history (default 7)")
    demo.add_argument("--once", action="store_true", help="run the cycle, do not serve")
    serve = add_command(
        commands,
        "serve",
        ("operate.serve_commands", "serve"),
        "dashboard, cycle thread and health endpoints in one process",
    )
    add_serve_options(serve)
    _add_demo_exporter(commands)
    _add_agent(commands)
    cycle = add_command(
        commands,
        "cycle",
        ("operate.cycle_commands", "cycle"),
        "one cycle: collect, forecast, plan, recommend",
    )
    cycle.add_argument("--format", choices=("table", "json"), default="table")
    _add_source_options(cycle)
    collect = add_command(
        commands,
        "collect",
        ("operate.cycle_commands", "collect"),
        "collect from the configured sources into the store",
        lists=True,
    )
    _add_source_options(collect)
    forecast = add_command(
        commands,
        "forecast",
        ("show.forecast_command", "forecast"),
        "the forecasts of the latest cycle, with their backtest",
        lists=True,
    )
    forecast.add_argument(
        "--by",
        choices=("job", "group", "workload"),
        default="job",
        help="group: namespaces, models, fleet; workload: services and recurring jobs, whose "
        "week and month are forecast",
    )
    forecast.add_argument(
        "--points", action="store_true", help="q10, q50 and q90 of every slot (--format json)"
    )
    forecast.add_argument(
        "--backtest",
        action="store_true",
        help="ask every model at past moments of the stored series and compare them",
    )
    plan = add_command(
        commands,
        "plan",
        ("show.plan_command", "plan"),
        "the plan of the latest cycle, with its bounds and gap, nodes and tenants",
        lists=True,
    )
    add_plan_options(plan)


def _add_demo_exporter(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    exporter = add_command(
        commands,
        "demo-exporter",
        ("operate.serve_commands", "demo_exporter"),
        "serve the simulated fleet as DCGM exposition text on /metrics",
    )
    exporter.add_argument("--host", default="127.0.0.1")
    for option, default in (("--port", 9400), ("--seed", 7), ("--nodes", 8)):
        exporter.add_argument(option, type=int, default=default)


def _add_agent(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    agent = add_command(
        commands,
        "agent",
        ("operate.agent_command", "agent"),
        "on a GPU node: hold power caps that are asked for, and put limits back",
    )
    agent.add_argument("--node", metavar="NAME", help="this node's name (default: its host name)")
    agent.add_argument("--directory", help="folder with caps/ and reports/")
    agent.add_argument("--secret-file", metavar="FILE", help="the secret that signs them")
    agent.add_argument(
        "--state-file",
        metavar="FILE",
        default="/var/lib/trimtab-agent/limits.json",
        help="what must be put back (default %(default)s)",
    )
    agent.add_argument(
        "--poll", type=float, default=10.0, metavar="SECONDS", help="time between two looks"
    )
    agent.add_argument("--once", action="store_true", help="one look, then leave limits as set")
    agent.add_argument("--restore", action="store_true", help="put limits back and end")
    agent.add_argument(
        "--gpus", default="", metavar="LIST", help="with --restore: only these indices or UUIDs"
    )


def _add_import(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "import",
        ("operate.import_command", "import_"),
        "recorded telemetry into the store",
    )
    parser.add_argument("path", metavar="PATH")
    parser.add_argument("--map", metavar="MAP.toml", help="column map of a Parquet or CSV trace")
    parser.add_argument(
        "--kind", choices=("trace", "dcgm-text", "prometheus-json"), default="trace"
    )
    parser.add_argument("--at", type=utc_time, metavar="TIME", help="time of a dcgm-text file")


def _add_apply(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("apply", help="the apply worker: state, kill switch, one run")
    parser.set_defaults(run=deferred("decide.apply_commands", "status"), format="table")
    actions = parser.add_subparsers(metavar="ACTION")
    add_command(
        actions,
        "status",
        ("decide.apply_commands", "status"),
        "the switches, and the commands that are not finished",
        lists=True,
    )
    stop = add_command(
        actions, "stop", ("decide.apply_commands", "stop"), "kill switch: stop all applying at once"
    )
    stop.add_argument("--by", default="", metavar="NAME", help="who stops it")
    stop.add_argument("--reason", default="", help="why")
    resume = add_command(
        actions, "resume", ("decide.apply_commands", "resume"), "let applying go on"
    )
    resume.add_argument("--by", required=True, metavar="NAME", help="who lets it go on")
    add_command(
        actions,
        "work",
        ("decide.apply_commands", "work"),
        "carry out what is due, watch and measure what was applied, tell people, and end",
    )
    savings = add_command(
        commands,
        "savings",
        ("show.savings_command", "savings"),
        "what applied recommendations promised, and what they brought",
        lists=True,
    )
    savings.add_argument(
        "--by",
        choices=("change", "finding", "day", "namespace"),
        default="change",
        help="change: the first hours after each (default); else all days until today, added up",
    )


def _add_lists(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    for name, summary in (
        ("jobs", "the jobs known now, or the applications that own them"),
        ("queue", "the jobs that wait for GPUs: for what, behind whom, how much longer"),
        ("quotas", "the limits on GPUs of Kueue's and Slurm's queues, and their use"),
        ("capacity", "how many boards of each model to keep, return or add, and what they cost"),
        ("heat", "the heat of racks (power domains), now and in the next day"),
        ("gpus", "the GPUs known now"),
        ("nodes", "the nodes as their schedulers describe them"),
        ("sources", "the sources and how the last cycle fared with them"),
        ("urgent", "jobs that run out of GPU memory, boards that failed and exceeded budgets"),
        ("settings", "the settings in force and where each came from, secrets redacted"),
        ("doctor", "what is missing for every source and target, and the fix"),
    ):
        module = "operate.doctor_command" if name == "doctor" else "show.list_commands"
        function = name if name in ("jobs", "settings", "doctor") else "list_"
        command = add_command(commands, name, (module, function), summary, lists=True)
        command.set_defaults(listed=name)
        if name == "jobs":
            add_job_options(command)
        elif function == "list_":
            add_selectors(command)
        if name == "doctor":
            command.add_argument("--prometheus", metavar="URL", help="check this address too")
    add_samples(commands)
    energy = add_command(
        commands,
        "energy",
        ("show.energy_command", "energy"),
        "energy, emissions and their factors, by whom and when",
        lists=True,
    )
    add_energy_options(energy)
    add_statement(commands)
    report = commands.add_parser("report", help="the weekly report")
    kinds = report.add_subparsers(metavar="KIND", required=True)
    weekly = add_command(kinds, "weekly", ("show.report_command", "weekly"), "the last seven days")
    weekly.add_argument("--out", metavar="FILE", help="write here instead of stdout")
    weekly.add_argument("--format", choices=("html", "pdf", "md", "json"), default="md")
    weekly.add_argument("--now", type=utc_time, metavar="TIME", help="end of the week (ISO, UTC)")
    weekly.add_argument(
        "--last-week",
        action="store_true",
        help="the last whole week of the settings report.timezone and report.week_ends",
    )
    weekly.add_argument(
        "--send",
        action="store_true",
        help="send the last whole week to the recipients of the settings, each edition once",
    )
    weekly.add_argument(
        "--check", action="store_true", help="with --send: say who would get what, send nothing"
    )
    audit = commands.add_parser("audit", help="the append-only record")
    audit.set_defaults(run=deferred("show.list_commands", "list_"), format="table", listed="audit")
    actions = audit.add_subparsers(metavar="ACTION")
    entries = add_command(
        actions, "list", ("show.list_commands", "list_"), "every entry", lists=True
    )
    add_selectors(entries)
    verify = add_command(
        actions,
        "verify",
        ("show.list_commands", "audit_verify"),
        "check the hash chain and its rows",
    )
    verify.add_argument(
        "--head", default="", metavar="HASH", help="hash noted down before, which must be there"
    )


def _add_submission(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    estimate = add_command(
        commands,
        "estimate",
        ("decide.estimate_command", "estimate"),
        "peak GPU memory of a training job and the plans that fit, with the breakdown",
        lists=True,
    )
    add_estimate_options(estimate)
    submit = add_command(
        commands,
        "submit",
        ("decide.submit_command", "submit"),
        "plan, place and submit a job that names no GPU",
    )
    submit.add_argument("job", metavar="JOB.toml")
    submit.add_argument("--target", choices=("kubernetes", "slurm"))
    submit.add_argument("--dry-run", action="store_true", help="show it, submit nothing")
    submit.add_argument("--yes", action="store_true", help="do not ask")
    submit.add_argument("--by", metavar="NAME", help="who submits (default: this user)")
    submit.add_argument("--format", choices=("table", "json"), default="table")
    parser = commands.add_parser("submissions", help="list, show, watch submitted jobs")
    parser.set_defaults(run=deferred("decide.submit_command", "list_"), format="table")
    actions = parser.add_subparsers(metavar="ACTION")
    add_command(
        actions,
        "list",
        ("decide.submit_command", "list_"),
        "every submitted job and its state",
        lists=True,
    )
    show = add_command(
        actions,
        "show",
        ("decide.submit_command", "show"),
        "one submitted job whole, with its attempts",
    )
    show.add_argument("id")
    show.add_argument("--format", choices=("table", "json"), default="table")
    watch = add_command(
        actions,
        "watch",
        ("decide.submit_command", "watch"),
        "ask the clusters how submitted jobs fare",
    )
    watch.add_argument("--until-done", action="store_true", help="ask until none is open")
    watch.add_argument("--every", type=float, default=30.0, metavar="SECONDS")
    add_command(
        commands,
        "memory",
        ("show.memory_command", "memory"),
        "memory of every job against its limit, what runs out and where room is",
        lists=True,
    )


def _add_shell(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    completion = add_command(
        commands,
        "completion",
        ("operate.completion_command", "completion"),
        "print a script that makes a shell complete commands, options and files",
    )
    completion.add_argument("shell", choices=("bash", "zsh"))
    about = "print the manual page, as man reads it"
    add_command(commands, "manual", ("operate.completion_command", "manual"), about)


class HelpfulParser(argparse.ArgumentParser):
    """Names the nearest word where one of a few was meant, and ends its help with examples."""

    def format_help(self) -> str:
        """Return the help."""
        return super().format_help() + examples_of(self.prog.removeprefix("trimtab "))

    def error(self, message: str) -> NoReturn:
        """End with a usage error."""
        match = _NO_CHOICE.search(message)
        if match is not None:
            choices = _WORD.findall(match["known"])
            similar = difflib.get_close_matches(match["given"], choices, n=1, cutoff=0.5)
            if similar:
                begin = message[: match.start()]
                message = f"{begin}{match['given']!r} is unknown; did you mean {similar[0]}?"
        late = _LATE.match(message)
        if late is not None:
            message = f"{message}; {late[1]} stands before the command: trimtab {late[1]} … jobs"
        super().error(message)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `trimtab`."""
    parser: argparse.ArgumentParser = HelpfulParser(
        prog="trimtab",
        description="Watch a GPU fleet, forecast what every job needs, plan allocations over time, "
        "and trim the fleet once a person approves.",
    )
    parser.add_argument("--settings", metavar="FILE", help="settings file (default trimtab.toml)")
    parser.add_argument("--store", metavar="URL", help="duckdb:///PATH or postgresql+psycopg://…")
    parser.add_argument("--server", metavar="URL", help="ask this server instead of a store")
    parser.add_argument("--token-file", metavar="FILE", help="the token for --server")
    parser.add_argument("--debug", action="store_true", help="tracebacks and debug logs")
    parser.add_argument(
        "--log-level", choices=LEVELS, help="default: warning; info for what keeps running"
    )
    parser.add_argument("--log-format", choices=FORMATS, default="text", help="of stderr's lines")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument("--version", action="version", version=f"trimtab {version('trimtab')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, action=CommandWords)
    _add_stages(commands)
    _add_import(commands)
    _add_lists(commands)
    add_store(commands)
    add_findings(commands)
    add_tokens(commands)
    about = "answer an assistant by the Model Context Protocol: tools that only read"
    add_command(commands, "mcp", ("operate.mcp_command", "serve_mcp"), about)
    _add_apply(commands)
    _add_submission(commands)
    add_serving(commands)
    _add_shell(commands)
    return parser
