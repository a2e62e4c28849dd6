"""Job files as strangers write them: any framework, and missing, huge and hostile values."""

import json
import random
from dataclasses import dataclass
from typing import Any

from dashboard.submission.job.command_options import COUNT_OPTIONS
from planner.memory.step.framework_traits import known_frameworks

CANARY = "canary-of-submission"
"""A file that only a word which a shell has run could make; `@` stands for it in hostile words."""

HOSTILE = (
    "$(touch @)",
    "`touch @`",
    "; touch @",
    "' ; touch @ #",
    '" && touch @ "',
    "| touch @",
    "$(RANK)",
    "$$(RANK)",
    "${IFS}touch${IFS}@",
    "\\",
    "'",
    '"',
    "\\'",
    "-",
    "--",
    "#SBATCH --uid=0",
    "{a: b}",
    "- x",
    "&x *x",
    "!!python/object/apply:os.system ['touch @']",
    "%j",
    "~",
    "*",
    "é",
    "日本",
    "a b",
    "{micro_batch",
    "}{",
    "${micro_batch}",
    "=",
    "\t",
    "x" * 3000,
)
REFUSED = ("\n#SBATCH --uid=0", "a\nb; touch @", "\r", "\x00", "\x1b[2J", "y" * 5000)
"""No line of a batch script may hold these."""
NAMES = ("run", "a", "x" * 40, "UPPER", "-x", "a b", "x" * 41, "a;b", "../../a", "$(id)", "", "a.b")
IMAGES = (
    "registry.example/train:1",
    "r/t@sha256:" + "0" * 64,
    "x y",
    "",
    "$(touch @)",
    "r/../t",
    "R:1",
)
FOLDERS = ("", "/var", "relative", "/a b", "/x/../y", "/$(touch @)", "/" + "d" * 200, "/%j")
LOGS = ("", "/dev/null", "/var/%x-%u", "log", "/dev/null\n#SBATCH --uid=0")
CLAIMS = ("", "there", "of-nowhere", "UPPER", "a" * 64, "a/../b", "a$(id)")
VARIABLES = ("WANDB_MODE", "A", "_", "1A", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "a b", "A=B")
PROGRAMS = (
    ("train.py",),
    ("python", "train.py"),
    ("python", "-m", "train"),
    ("./train",),
    ("bash", "t.sh"),
    ("--nproc-per-node=7", "train.py"),
    ("accelerate", "launch", "t.py"),
    ("deepspeed", "t.py"),
    ("-x",),
    ("t t.py",),
)
HUGE = (
    ("training", "global_batch", 10**7),
    ("training", "global_batch", 10**30),
    ("training", "sequence_length", 10**8),
    ("training", "micro_batch", -1),
    ("training", "adapter_rank", 10**9),
    ("host", "cpus_per_gpu", 1024),
    ("host", "memory_gib_per_gpu", 1e5),
    ("host", "memory_gib_per_gpu", 1e300),
    ("data", "tokens", 1e17),
    ("data", "tokens", float("nan")),
    ("", "time_limit_hours", 1e300),
    ("", "time_limit_hours", 8760),
    ("on_out_of_memory", "retries", 99),
)
MISSING = ("name", "command", "image", "model", "training")


@dataclass(frozen=True)
class SubmissionScenario:
    """One job file; the defaults are a plain one that every cluster takes."""

    framework: str = ""
    launcher: str = "torchrun"
    program: tuple[str, ...] = ("train.py",)
    named: tuple[str, ...] = COUNT_OPTIONS
    reads: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    name: str = "run"
    image: str = IMAGES[0]
    workdir: str = ""
    log: str = "/dev/null"
    claim: str = ""
    batch: int = 8
    micro_batch: int | None = None
    recompute: str = ""
    method: str = "full"
    hours: float | None = None
    tokens: float | None = None
    cpus: int | None = None
    huge: tuple[str, str, float] | None = None
    missing: str = ""
    kind: str = "job"


def draw(source: random.Random) -> SubmissionScenario:
    """Draw a job file: plain in most of its fields, hostile in a few."""

    def rarely(values: tuple[Any, ...], plain: Any, odds: float = 0.06) -> Any:
        return source.choice(values) if source.random() < odds else plain

    def some(values: tuple[str, ...], most: int) -> tuple[str, ...]:
        return tuple(source.sample(values, source.randint(0, min(most, len(values)))))

    words = HOSTILE if source.random() < 0.95 else REFUSED
    return SubmissionScenario(
        framework=source.choice(("", *known_frameworks())),
        launcher=source.choice(("torchrun", "torchrun", "none")),
        program=rarely(PROGRAMS, ("train.py",), 0.2),
        named=some(COUNT_OPTIONS, len(COUNT_OPTIONS)) if source.random() < 0.3 else COUNT_OPTIONS,
        reads=some(COUNT_OPTIONS, 4) if source.random() < 0.3 else (),
        words=some(words, 4),
        variables=tuple((rarely(VARIABLES, "A"), word) for word in some(words, 2)),
        name=rarely(NAMES, "run"),
        image=rarely(IMAGES, IMAGES[0]),
        workdir=rarely(FOLDERS, ""),
        log=rarely(LOGS, "/dev/null"),
        claim=rarely(CLAIMS, "", 0.15),
        batch=source.choice((1, 2, 6, 8, 64, 96)),
        micro_batch=rarely((1, 2, 4, 7), None, 0.3),
        recompute=rarely(("none", "operators", "full"), ""),
        method=rarely(("adapter",), "full", 0.3),
        hours=rarely((0.01, 1.0, 23.9, 1000.0), None, 0.4),
        tokens=rarely((1.0, 1e6, 1e9, 1e12), None, 0.4),
        cpus=rarely((1, 7, 64, 1024), None, 0.15),
        huge=rarely(HUGE, None, 0.05),
        missing=rarely(MISSING, "", 0.03),
        kind=source.choice(("job", "job", "jobset", "pytorchjob")),
    )


def table_of(scenario: SubmissionScenario, canary: str, stub: dict[str, str]) -> dict[str, Any]:
    """Return the job file as a table; `stub` are variables that the trial itself needs."""

    def filled(word: str) -> str:
        return word.replace("@", canary)

    training = {
        "global_batch": scenario.batch,
        "sequence_length": 512,
        "framework": scenario.framework,
        "method": scenario.method,
        "micro_batch": scenario.micro_batch,
        "recompute": scenario.recompute or None,
    }
    table: dict[str, Any] = {
        "name": scenario.name,
        "command": [
            *scenario.program,
            *(f"--{name}={{{name}}}" for name in scenario.named),
            *map(filled, scenario.words),
        ],
        "launcher": scenario.launcher,
        "reads": list(scenario.reads),
        "image": filled(scenario.image) or None,
        "workdir": filled(scenario.workdir) or None,
        "log": scenario.log or None,
        "time_limit_hours": scenario.hours,
        "model": {"name": "tinyllama-1.1b"},
        "training": training,
        "environment": {name: filled(word) for name, word in scenario.variables} | stub,
        "data": {"claim": scenario.claim or None, "tokens": scenario.tokens},
        "host": {"cpus_per_gpu": scenario.cpus},
        "on_out_of_memory": {},
    }
    if scenario.huge is not None:
        section, key, value = scenario.huge
        (table[section] if section else table)[key] = value
    table.pop(scenario.missing, None)
    return table


def toml_of(table: dict[str, Any]) -> str:
    """Return a table as the text of a job file; what is None is left out."""
    inner = {name: values for name, values in table.items() if isinstance(values, dict)}
    lines = [
        f"{_text(name)} = {_text(value)}"
        for name, value in table.items()
        if name not in inner and value is not None
    ]
    for section, values in inner.items():
        lines.append(f"[{section}]")
        lines += [
            f"{_text(name)} = {_text(value)}" for name, value in values.items() if value is not None
        ]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)  # nan and 1e+300 are TOML as they are
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
