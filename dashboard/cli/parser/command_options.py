"""The options of commands that have many; nothing heavy is imported."""

import argparse

from dashboard.accounting.cost.groups import GROUPS
from dashboard.cli.parser.add_command import add_command, add_selectors
from dashboard.cli.terminal.option_types import JOB_FIELDS, JOB_ORDERS, utc_time

_ENERGY_BY = ("tenant", "namespace", "account", "owner", "job", "model", "node", "cluster", "fleet")
_PERIODS = ("hour", "day", "week")
FORMATS = ("table", "csv", "json", "focus-csv", "focus-parquet", "opencost")
KNOBS = ("headroom", "shortfall-price", "churn", "carbon-price", "electricity-price")
"""What `dashboard.cycle.what_if` can turn, and the sliders of the plan on Findings."""


def add_energy_options(parser: argparse.ArgumentParser) -> None:
    """Add what the statement is told apart by, and its range."""
    parser.add_argument(
        "--by",
        choices=(*_ENERGY_BY, *_PERIODS),
        default="tenant",
        help="rows; hour, day or week: of the whole fleet (default tenant)",
    )
    parser.add_argument(
        "--every",
        choices=("total", *_PERIODS),
        default="total",
        help="each group by period, in the zone report.timezone (default total)",
    )
    _add_range(parser, start="7 days before --to")


def _groups(text: str) -> tuple[str, ...]:
    groups = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [part for part in groups if part not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(GROUPS)}")
    return groups


def add_statement(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command: what rows are told apart by, the range, and the format."""
    summary = "what the fleet costs, by whom: showback, budgets and FOCUS charges"
    parser = add_command(commands, "statement", ("show.statement_command", "statement"), summary)
    parser.add_argument(
        "--by",
        type=_groups,
        default=("tenant",),
        metavar="GROUPS",
        help=f"rows by these together, comma-separated: {', '.join(GROUPS)} (default tenant)",
    )
    parser.add_argument(
        "--every",
        choices=("total", "hour", "day", "week", "month"),
        help="each group by period, in the zone report.timezone (default total; FOCUS: day)",
    )
    _add_range(parser, start="the calendar month of --to")
    parser.add_argument(
        "--budgets",
        action="store_true",
        help="the month so far and its forecast end by tenant, at the time of --to",
    )
    parser.add_argument("--format", choices=FORMATS, default="table")
    parser.add_argument("--out", metavar="FILE", help="write here instead of stdout")


def add_samples(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command that shows what figures are made of."""
    samples = add_command(
        commands,
        "samples",
        ("show.samples_command", "samples"),
        "what figures are made of: the readings of a GPU, and what they were counted as",
        lists=True,
    )
    samples.add_argument("--gpu", default="", metavar="UUID", help="the board")
    samples.add_argument(
        "--slots",
        action="store_true",
        help="by five minutes: who held the device, for how long, its work and energy",
    )
    samples.add_argument("--job", default="", metavar="ID", help="with --slots: only of this job")
    _add_range(samples, start="a day before --to")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add whose rows are shown, and what to turn in a copy of the plan's problem."""
    parser.add_argument(
        "--by",
        choices=("job", "node", "tenant", "bound"),
        default="job",
        help="rows of the table: stretches of jobs, nodes, lending, lower bounds",
    )
    parser.add_argument(
        "--what-if",
        dest="what_if",
        metavar="KNOB=VALUE",
        action="append",
        type=_turned,
        help=(
            "solve a copy with this turned, and compare; may be repeated; nothing is kept: "
            + ", ".join(KNOBS)
        ),
    )


def _turned(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals or name not in KNOBS:
        raise argparse.ArgumentTypeError(f"{text!r}: give KNOB=VALUE, of {', '.join(KNOBS)}")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is no number for {name}") from None


def add_job_options(command: argparse.ArgumentParser) -> None:
    """Add what chooses and orders jobs, as the page Jobs has it."""
    command.add_argument("--by", choices=("job", "application"), default="job")
    for name in JOB_FIELDS:
        options = (f"--{name}", *(["--team"] if name == "namespace" else []))
        command.add_argument(
            *options, dest=name, default="", metavar=name.upper(), help=f"only this {name}"
        )
    add_selectors(command, without=JOB_FIELDS, sorts=False)
    command.add_argument(
        "--search", default="", metavar="TEXT", help="in id, name or owner, in any case"
    )
    command.add_argument(
        "--running", action="store_true", help="only those that run, seen in the last hour"
    )
    command.add_argument(
        "--sort", choices=tuple(JOB_ORDERS), help="the largest first; default name"
    )
    command.add_argument(
        "--use", action="store_true", help="with GPU-hours, utilization and kWh of the last day"
    )


def add_estimate_options(estimate: argparse.ArgumentParser) -> None:
    """Add what a training job is, where nothing else says it, and what is asked of it."""
    estimate.add_argument(
        "model",
        nargs="+",
        metavar="MODEL_CONFIG",
        help="config.json or a known model; a framework's YAML or TOML; or -- and a launch command",
    )
    estimate.add_argument("--config", default="", metavar="FILE", help="the model's config.json")
    estimate.add_argument(
        "--serve", action="store_true", help="the model is served, not trained: by --framework"
    )
    estimate.add_argument("--batch", type=int, help="sequences of a whole step, or served at once")
    estimate.add_argument("--seq", type=int, help="tokens of a sequence")
    for name, meaning in (
        ("framework", "such as torchtitan; with --serve vllm (default) or sglang"),
        ("optimizer", "such as adamw or adamw8bit"),
        ("precision", "what is kept in which width, such as amp or bf16-true"),
        ("quantization", "of frozen or served weights, such as nf4 or fp8"),
    ):
        estimate.add_argument(f"--{name}", default="", help=meaning)
    estimate.add_argument("--method", choices=("full", "adapter"), default="")
    estimate.add_argument("--adapter-rank", type=int, metavar="R")
    estimate.add_argument("--lengths", choices=("fixed", "vary"), help="of sequences")
    estimate.add_argument("--recompute", choices=("none", "attention", "operators", "full"))
    estimate.add_argument("--micro-batch", type=int, metavar="B", help="fix the micro-batch")
    estimate.add_argument(
        "--gpu", action="append", default=[], metavar="TYPE", help="only this GPU type; repeatable"
    )
    estimate.add_argument(
        "--gpus", type=int, help="most GPUs (default 64), or all where no launcher says it"
    )
    for name in ("data", "tensor", "pipeline", "context", "expert"):
        estimate.add_argument(f"--{name}", type=int, metavar="N", help=f"fix {name} parallelism")
    shardings = ("none", "zero1", "zero2", "zero3", "fsdp", "fsdp-gradients")
    estimate.add_argument("--sharding", choices=shardings, help="over the data-parallel GPUs")
    estimate.add_argument(
        "--offload",
        action="append",
        default=[],
        choices=("optimizer", "parameters", "activations"),
        help="kept in the host's memory; repeatable",
    )
    estimate.add_argument(
        "--gpu-memory-utilization",
        type=float,
        metavar="SHARE",
        help="of a GPU that the engine takes (default: what it does unasked)",
    )
    estimate.add_argument(
        "--kv-cache-dtype", choices=("auto", "fp8"), default="", help="of the engine's cache"
    )
    estimate.add_argument("--tokens", type=float, metavar="N", help="of the run: shows its hours")
    estimate.add_argument(
        "--time-limit", type=float, metavar="HOURS", help="warn where a run takes longer"
    )
    estimate.add_argument("--top", type=int, default=10, help="plans shown (default 10)")


def _add_range(parser: argparse.ArgumentParser, *, start: str) -> None:
    """Add a range of time, whose default `start` is told."""
    parser.add_argument(
        "--from", dest="since", type=utc_time, metavar="TIME", help=f"default: {start}"
    )
    parser.add_argument(
        "--to", dest="until", type=utc_time, metavar="TIME", help="default: the newest sample"
    )


def add_serving(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `serving` with its commands."""
    serving = commands.add_parser("serving", help="what inference engines say, replicas they need")
    kinds = serving.add_subparsers(metavar="WHAT", required=True)
    read = add_command(
        kinds,
        "signals",
        ("show.serving_command", "signals"),
        "requests, tokens, latencies and KV-cache in an engine's /metrics, since it started",
        lists=True,
    )
    read.add_argument(
        "file",
        nargs="+",
        metavar="FILE",
        help="text of /metrics, or what Prometheus answered as JSON; /dev/stdin reads a pipe",
    )
    services = add_command(
        kinds,
        "services",
        ("show.serving_command", "services"),
        "inference services: what a replica carries, replicas needed now and foreseen",
        lists=True,
    )
    add_selectors(services)
    needed = add_command(
        kinds,
        "replicas",
        ("show.serving_command", "replicas"),
        "the replicas that keep waits short, and what one more or less does (queueing formula)",
        lists=True,
    )
    for name, kind, default, meaning in (
        ("rate", float, None, "requests per second of the whole service"),
        (
            "service-seconds",
            float,
            None,
            "from a request's admission to its last token, on a full replica",
        ),
        ("slots", int, None, "requests that a replica works on at once"),
        (
            "wait",
            float,
            "serving.wait_seconds",
            "seconds that a request may wait for its admission",
        ),
        (
            "share",
            float,
            "serving.wait_ratio",
            "fraction of requests that must start within --wait",
        ),
        (
            "arrival-scv",
            float,
            1,
            "squared coefficient of variation of the gaps, at most 16; bursts are above 1",
        ),
        ("service-scv", float, 1, "the same of the seconds of service"),
    ):
        setting = isinstance(default, str)
        needed.add_argument(
            f"--{name}",
            type=kind,
            required=default is None,
            default=None if setting else default,
            help=meaning if default is None else f"{meaning} (default {default})",
        )
