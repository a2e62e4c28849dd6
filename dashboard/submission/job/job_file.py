"""A job as its author describes it: model, data, batch, command. It names no GPU.

Everything in a job file is untrusted: what goes on must be plain enough that no shell, no sbatch
and no YAML could read more into it than a value.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dashboard.submission.job.command_options import COUNT_OPTIONS, check_command, named_in
from dashboard.submission.job.model_source import read_model
from data.base.errors import ChangeRefusedError, scrub
from data.base.files import read_small_file
from planner.memory.models.model_config import ReadModel
from planner.memory.models.model_shape import ModelShape
from planner.memory.step.framework_traits import (
    optimizer,
    policy_name,
    quantization,
    require_framework,
)
from planner.memory.step.training_job import Adapter, Method, Recompute, TrainingJob

MAX_FILE = 1 << 20
SUPPORTS = ("sharding", "tensor", "pipeline", "recompute")
LAUNCHERS = ("torchrun", "none")
_NAMES_A_GPU = (
    "gpu", "gpus", "gpu_type", "gpu_model", "gpu_count", "gres", "nodes", "nproc_per_node",
    "tensor", "pipeline",
)  # fmt: skip
_OWN_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES",
)  # fmt: skip
_OF_BASH = (
    "_", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD",
    "IFS", "LINENO", "OLDPWD", "OPTIND", "PPID", "PWD", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL",
    "SRANDOM", "UID",
)  # fmt: skip
"""Variables that bash writes itself or lets nobody write: a batch script would end at them."""
_OUR_PREFIXES = ("BASH", "TRIMTAB_", "SLURM_", "SBATCH_", "PET_", "JOB_COMPLETION_")
_MAX_RETRIES = 5
_OF_ADAPTERS = ("quantization", "adapter_rank", "adapter_targets")
JOB_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
PATH = re.compile(r"/[A-Za-z0-9_./%+=@-]{0,400}")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,400}")
CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_TEXT = 4000
Whole = int


@dataclass(slots=True)
class Table:
    """One table of a job file; remembers which keys were asked for, so that others are refused."""

    name: str
    values: Mapping[str, Any]
    read_names: set[str] = field(default_factory=set)

    def _what(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def value(self, key: str) -> Any:
        """Return the stated value, None when it is not stated."""
        self.read_names.add(key)
        return self.values.get(key)

    def _stated(self, key: str, wanted: str, is_right: Callable[[Any], bool]) -> Any:
        value = self.value(key)
        if value is not None and not is_right(value):
            raise refused(self._what(key), value, wanted)
        return value

    def table(self, key: str) -> "Table":
        """Return an inner table, empty when it is not stated."""
        value = self._stated(key, "a table", lambda value: isinstance(value, Mapping))
        return Table(self._what(key), value or {})

    def text(self, key: str, pattern: re.Pattern[str] | None = None, *, wanted: str = "") -> str:
        """Return a text that matches, '' when it is not stated."""
        value: str | None = self._stated(key, "a text", lambda value: isinstance(value, str))
        if value is None:
            return ""
        plain_text(self._what(key), value)
        if pattern is not None and (pattern.fullmatch(value) is None or ".." in value.split("/")):
            raise refused(self._what(key), value, wanted)
        return value

    def number(self, key: str, *, low: float, high: float) -> float | None:
        """Return a number in its range, None when it is not stated."""
        value = self._stated(
            key,
            f"a number from {low:g} to {high:g}",
            lambda value: type(value) in (int, float) and low <= value <= high,
        )
        return None if value is None else float(value)

    def whole(self, key: str, *, low: int = 1, high: int = 10**9) -> Whole | None:
        """Return a whole number in its range, None when it is not stated."""
        value = self.number(key, low=low, high=high)
        if value is None:
            return None
        if value != int(value):
            raise refused(self._what(key), value, "a whole number")
        return int(value)

    def needed(self, key: str, *, low: int = 1, high: int = 10**9) -> Whole:
        """Return a whole number that must be stated."""
        value = self.whole(key, low=low, high=high)
        if value is None:
            raise ChangeRefusedError(
                f"the job file lacks {self._what(key)}", f"Add {self._what(key)}."
            )
        return value

    def flag(self, key: str) -> bool | None:
        """Return true or false, None when it is not stated."""
        value: bool | None = self._stated(
            key, "true or false", lambda value: isinstance(value, bool)
        )
        return value

    def word(self, key: str, choices: Iterable[str]) -> str:
        """Return one of the known words, '' when it is not stated."""
        words = tuple(choices)
        value = self.text(key)
        if value and value not in words:
            raise refused(self._what(key), value, f"one of {', '.join(words)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty when it is not stated."""
        value = self._stated(
            key,
            "a list of texts",
            lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
        )
        return tuple(plain_text(self._what(key), entry) for entry in value or ())

    def refuse_others(self) -> None:
        """Refuse keys that nobody asked for: a misspelt limit must not be ignored."""
        others = sorted(set(self.values) - self.read_names)
        if others:
            name = scrub(self._what(others[0]), limit=60)
            raise ChangeRefusedError(
                f"the job file has an unknown key {name!r}",
                f"Known here: {', '.join(sorted(self.read_names))}.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One job file, checked. What it does not state is None or ''; `assumed` is of the model.

    `supports` is what the program can do with its GPUs beyond data parallelism; `reads` are the
    values of a plan that it takes from its environment. Paths are those of the cluster. `tokens`
    are those of the whole run.
    """

    name: str
    shape: ModelShape
    assumed: tuple[str, ...]
    global_batch: int
    sequence_length: int
    command: tuple[str, ...]
    launcher: str = "torchrun"
    supports: tuple[str, ...] = SUPPORTS
    reads: tuple[str, ...] = ()
    framework: str = ""
    method: str = Method.FULL.value
    optimizer: str | None = None
    precision: str | None = None
    quantization: str = ""
    adapter_rank: int | None = None
    adapter_targets: tuple[str, ...] = ()
    length_varies: bool | None = None
    flash_attention: bool | None = None
    compiled: bool | None = None
    micro_batch: int | None = None
    recompute: str = ""
    image: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    data_path: str = ""
    data_claim: str = ""
    tokens: float | None = None
    workdir: str = ""
    log: str = ""
    deadline: datetime | None = None
    time_limit_hours: float | None = None
    cpus_per_gpu: int | None = None
    memory_mib_per_gpu: int | None = None
    resubmit_on_oom: bool = False
    oom_retries: int = 0

    @property
    def told(self) -> frozenset[str]:
        """The values of a plan that the program is told, or that the job file fixes."""
        fixed = {"micro_batch": self.micro_batch, "recompute": self.recompute}
        stated = frozenset(name for name, value in fixed.items() if value)
        return named_in(self.command) | frozenset(self.reads) | stated

    @property
    def training_job(self) -> TrainingJob:
        """The job for the memory predictor, before it is spread over GPUs."""
        adapts = self.method == Method.ADAPTER
        return TrainingJob(
            shape=self.shape,
            framework=self.framework,
            method=Method(self.method),
            adapter=Adapter(rank=self.adapter_rank, targets=self.adapter_targets)
            if adapts
            else None,
            sequence_length=self.sequence_length,
            length_varies=self.length_varies,
            precision=self.precision,
            optimizer=self.optimizer,
            quantization=self.quantization,
            flash_attention=self.flash_attention,
            compiled=self.compiled,
        )


def load_job_file(path: Path) -> JobFile:
    """Return the job of a TOML file. Errors: ChangeRefusedError, ImpossibleProblemError."""
    try:
        body = read_small_file(path, max_bytes=MAX_FILE)
    except OSError as error:
        raise ChangeRefusedError(
            f"cannot read the job file {path}: {error.strerror}", "Give the path of a TOML file."
        ) from error
    return read_job(parsed_job(body, label=str(path)), folder=path.parent)


def parsed_job(body: bytes, *, label: str) -> dict[str, Any]:
    """Return the table of a job file's text. Errors: ChangeRefusedError."""
    try:
        return tomllib.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise ChangeRefusedError(
            f"{label} is not valid TOML: {scrub(str(error))}", "Mend that line."
        ) from error


def read_job(values: dict[str, Any], *, folder: Path, model: ReadModel | None = None) -> JobFile:
    """Return the job that a table describes; model configs are looked for in `folder`.

    `model` is taken instead of the table's where it was read already.

    Errors: ChangeRefusedError naming the field, ImpossibleProblemError for a model that is none.
    """
    top = Table("", values)
    training, host, data = top.table("training"), top.table("host"), top.table("data")
    model_table, again = top.table("model"), top.table("on_out_of_memory")
    for table in (top, training, host):
        _refuse_gpus(table)
    name = top.text("name", JOB_NAME, wanted="1 to 40 of a-z, 0-9 and '-'")
    if not name:
        raise ChangeRefusedError("the job file lacks name", 'Add name = "my-job".')
    model_name, config = model_table.text("name"), model_table.text("config")
    read = model or read_model(name=model_name, config=config, folder=folder, place="[model]")
    job = JobFile(
        name=name,
        shape=read.shape,
        assumed=read.assumed,
        command=_command(top),
        launcher=top.word("launcher", LAUNCHERS) or LAUNCHERS[0],
        supports=_choices(top, "supports", SUPPORTS, default=SUPPORTS),
        reads=_choices(top, "reads", COUNT_OPTIONS),
        image=top.text("image", IMAGE, wanted="an image reference such as registry/train:1"),
        environment=_environment(top),
        workdir=top.text("workdir", PATH, wanted="an absolute path of plain characters"),
        log=top.text("log", PATH, wanted="an absolute path of plain characters"),
        deadline=_deadline(top),
        time_limit_hours=top.number("time_limit_hours", low=0.01, high=24 * 365),
        data_path=data.text("path", PATH, wanted="an absolute path of plain characters"),
        data_claim=data.text("claim", CLAIM, wanted="the name of a PersistentVolumeClaim"),
        tokens=data.number("tokens", low=1, high=1e17),
        cpus_per_gpu=host.whole("cpus_per_gpu", high=1024),
        memory_mib_per_gpu=_host_memory(host),
        resubmit_on_oom=again.flag("resubmit") or False,
        oom_retries=again.whole("retries", low=0, high=_MAX_RETRIES) or 0,
        **_training(training),
    )
    if job.global_batch % (job.micro_batch or 1):
        raise refused("training.micro_batch", job.micro_batch, "a divisor of global_batch")
    check_command(job.command, launcher=job.launcher, has_data_path=bool(job.data_path))
    if "%" in job.log.replace("%j", ""):
        raise refused("log", job.log, "a path whose only pattern is %j, the job's number")
    for table in (top, training, host, data, model_table, again):
        table.refuse_others()
    _ = job.training_job  # refuses sizes that no job has, here already
    return job


def _training(table: Table) -> dict[str, Any]:
    method = table.word("method", (Method.FULL.value, Method.ADAPTER.value)) or Method.FULL.value
    fields: dict[str, Any] = {
        "global_batch": table.needed("global_batch", high=10**7),
        "sequence_length": table.needed("sequence_length", high=10**8),
        "framework": table.text("framework"),
        "method": method,
        "optimizer": table.text("optimizer") or None,
        "precision": table.text("precision") or None,
        "quantization": table.text("quantization"),
        "adapter_rank": table.whole("adapter_rank", high=65_536),
        "adapter_targets": table.texts("adapter_targets"),
        "length_varies": table.flag("length_varies"),
        "flash_attention": table.flag("flash_attention"),
        "compiled": table.flag("compiled"),
        "micro_batch": table.whole("micro_batch", high=10**6),
        "recompute": table.word("recompute", (entry.value for entry in Recompute)),
    }
    for key in _OF_ADAPTERS:
        if fields[key] and method != Method.ADAPTER:
            raise ChangeRefusedError(
                f"training.{key} of the job file has no use without method = 'adapter'",
                f'Add method = "adapter", or take {key} out.',
            )
    if fields["framework"]:
        require_framework(fields["framework"])
    if fields["optimizer"]:
        optimizer(fields["optimizer"])
    if fields["precision"]:
        fields["precision"] = policy_name(fields["precision"], fields["framework"])
    if fields["quantization"]:
        quantization(fields["quantization"])
    return fields


def _refuse_gpus(table: Table) -> None:
    for key in _NAMES_A_GPU:
        if key in table.values:
            where = f"{table.name}.{key}" if table.name else key
            raise ChangeRefusedError(
                f"the job file names {where}", "Take it out: Trimtab finds the GPUs for the job."
            )


def _command(table: Table) -> tuple[str, ...]:
    words = table.texts("command")
    if not words or not words[0]:
        raise ChangeRefusedError(
            "the job file lacks command", 'Add command = ["train.py", "--config", "run.yaml"].'
        )
    return words


def _choices(
    table: Table, key: str, choices: tuple[str, ...], *, default: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the words of a list that must be known ones, `default` when it is not stated."""
    if table.value(key) is None:
        return default
    texts = table.texts(key)
    for word in texts:
        if word not in choices:
            raise refused(key, word, f"a list of {', '.join(choices)}")
    return tuple(word for word in choices if word in texts)


def _environment(table: Table) -> tuple[tuple[str, str], ...]:
    inner = table.table("environment")
    pairs = []
    for name, value in sorted(inner.values.items()):
        if VARIABLE.fullmatch(name) is None:
            raise refused("a variable name", name, "letters, digits and '_'")
        if name in (*_OWN_VARIABLES, *_OF_BASH) or name.startswith(_OUR_PREFIXES):
            raise ChangeRefusedError(
                f"the job file sets {name}",
                "Take it out: Trimtab, the cluster or the shell sets it.",
            )
        if not isinstance(value, str):
            raise refused(f"environment.{name}", value, "a text")
        pairs.append((name, plain_text(f"environment.{name}", value)))
    return tuple(pairs)


def _deadline(table: Table) -> datetime | None:
    value = table.value("deadline")
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise refused("deadline", value, "a time with its zone such as 2026-01-31T08:00:00Z")
    return value.astimezone(UTC)


def _host_memory(table: Table) -> int | None:
    value = table.number("memory_gib_per_gpu", low=0.1, high=100_000)
    return None if value is None else round(value * 1024)


def refused(what: str, value: object, rule: str) -> ChangeRefusedError:
    """Return the error for a field of the job file."""
    return ChangeRefusedError(
        f"{what} of the job file is {scrub(repr(value), limit=80)}", f"It must be {rule}."
    )


def plain_text(what: str, value: str) -> str:
    """Return a text without control characters, of a decent length. Errors: ChangeRefusedError."""
    if len(value) > _MAX_TEXT or not value.isprintable():
        raise refused(what, value, f"printable text of at most {_MAX_TEXT} characters")
    return value
