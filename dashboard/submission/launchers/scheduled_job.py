"""A job as its owner hands it to a scheduler, before it is admitted: a batch script, an object.

Its text is of others: nothing in it is run, and no file that it names is read.
"""

import argparse
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from string import Template
from typing import Any

from collectors.kubernetes.objects import requests_of
from collectors.kubernetes.workload_state import is_suspended
from collectors.shared.json_parts import list_in, part, text_in, whole_number
from dashboard.apply.kubernetes.state.json_patch import value_at
from dashboard.apply.slurm.client.time_limits import seconds_of_limit
from dashboard.submission.launchers.command_line import ASSIGNMENT
from dashboard.submission.launchers.fields import dialect
from dashboard.submission.launchers.launched_job import LaunchedJob, LaunchOptions, launched_job
from data.base.errors import ChangeRefusedError, ImpossibleProblemError, scrub
from data.base.units import SECONDS_PER_HOUR
from data.facts.gpu_resources import PRODUCT_LABEL

JOB_ANNOTATION, SIZE_ANNOTATION, CONSENT = "trimtab/job", "trimtab/size", "apply"
DEADLINE = "activeDeadlineSeconds"
_DIRECTIVE, _OF_OWNER = "#SBATCH ", "#TRIMTAB "
GPU_OPTIONS = ("gpus-per-node", "gres", "gpus")
_GPUS = re.compile(r"(?:gres:)?(?:gpu(?::|$))?([A-Za-z][\w.-]*)?:?(\d{0,6})", re.ASCII)
_STARTS = re.compile(
    r"(.*/)?(srun|torchrun|accelerate|deepspeed|axolotl|swift|megatron|llamafactory-cli|trl"
    r"|python[\d.]*)"
)
_TRIMTAB_VARIABLE = re.compile(r"\bTRIMTAB_([A-Z_]+)\b")
_SHELL = re.compile(r"(?:/\w+)*/?(?:ba|da)?sh")
_LONG = re.compile(
    r"""(?m)^([ \t]*(?:export[ \t]+)?[A-Za-z_]\w*=)(?:\(([^()]*)\)|"([^"\n]*\n[^"]*)")"""
)
"""A variable of several words: an array, or text of more than one line."""
_ALL = re.compile(r'"?\$\{(\w+)\[[@*]\]\}"?')
_NAMED = re.compile(r"\$\{?(\w+)")
_QUOTED = re.compile(r'"\$(?:\{(\w+)\}|(\w+))"')
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES", *dialect("environment").flags}
_MAX_COMMANDS, _MAX_CHARACTERS = 20, 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledJob:
    """A job that waits for admission.

    `recipe` are the tables of a job file that its owner wrote beside it. `commands` start programs:
    the first that can be read counts. `reads` are the values of a plan that it takes from its
    environment. `nodes` and `each`, GPUs of a node, are None where it names none, as is the limit.
    `is_open`: it may still be changed, and `consents` says that its owner wants that. Of an object
    `place` is the pointer of its pod template, of a script `options` are those of sbatch.
    """

    recipe: Mapping[str, Any]
    commands: tuple[tuple[str, ...], ...]
    reads: tuple[str, ...]
    nodes: int | None
    each: int | None
    gpu: str
    queue: str
    limit_hours: float | None
    consents: bool
    is_open: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""

    def launched(self) -> LaunchedJob:
        """Return the job of its launch command. Errors: those of `launched_job`, of the last."""
        allocation = {"nodes": self.nodes, "gpus-per-node": self.each}
        options = [f"--{name}={count}" for name, count in allocation.items() if count]
        refusal: Exception = ChangeRefusedError(
            "no command of the job starts a program that trains",
            f"State the job in lines {_OF_OWNER}or the annotation {JOB_ANNOTATION}.",
        )
        for words in self.commands:
            try:
                return launched_job(("srun", *options, *words), LaunchOptions(folder=None))
            except (ChangeRefusedError, ImpossibleProblemError) as error:
                refusal = error
        raise refusal


def read_script(text: str) -> ScheduledJob:
    """Return the job of a batch script. Errors: ChangeRefusedError naming the line's fault."""
    lines = _lines_of(text)
    recipe = _recipe("\n".join(_after(_OF_OWNER, lines)), _OF_OWNER)
    consent = recipe.pop("size", "")
    words = [word for line in _after(_DIRECTIVE, lines) for word in _words(line)]
    # What sbatch made of its command line goes before what the script says.
    options = _options([*words, *_words(str(recipe.pop("options", "")))])
    nodes = int(options.get("nodes", "").partition("-")[0] or 1)
    gpu, each = _gpus(options, nodes)
    names = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_GPUS_ON_NODE")
    variables = dict(zip(names, map(str, (nodes, nodes, each or "")), strict=True))
    return ScheduledJob(
        recipe=recipe,
        commands=tuple(islice(_commands(lines, variables), _MAX_COMMANDS)),
        reads=_read_names(text),
        nodes=None if each is None else nodes,
        each=each,
        gpu=gpu,
        queue=options.get("partition", ""),
        limit_hours=_hours(options.get("time", "")),
        consents=consent == CONSENT,
        options=options,
    )


def read_object(document: Mapping[str, Any]) -> ScheduledJob:
    """Return the job of a Job, JobSet or TrainJob. Errors: ChangeRefusedError."""
    place, pods = _pods_of(document)
    is_trainer = place.endswith("trainer")
    pod = value_at(document, place)
    containers = [pod] if is_trainer else list_in(pod, "spec", "containers")
    container = max(containers, key=_whole_gpus, default=None)
    values = {
        text_in(entry, "name"): text_in(entry, "value") for entry in list_in(container, "env")
    }
    words = [str(word) for name in ("command", "args") for word in list_in(container, name)]
    words = [re.sub(r"\$\((\w+)\)", r"${\1}", word) for word in words]
    is_shell = bool(words and _SHELL.fullmatch(words[0]))
    lines = _lines_of(words[-1]) if is_shell else [shlex.join(words)]
    annotations = part(document, "metadata", "annotations")
    seconds = whole_number(part(document, "spec", DEADLINE))
    return ScheduledJob(
        recipe=_recipe(str(part(annotations, JOB_ANNOTATION) or ""), JOB_ANNOTATION),
        commands=tuple(islice(_commands(lines, values, values), _MAX_COMMANDS)),
        reads=_read_names(" ".join(words)),
        nodes=pods,
        each=_whole_gpus(container) or None,
        gpu=text_in(pod, "spec", "nodeSelector", PRODUCT_LABEL),
        queue=text_in(document, "metadata", "namespace"),
        limit_hours=seconds and seconds / SECONDS_PER_HOUR,
        consents=text_in(annotations, SIZE_ANNOTATION) == CONSENT,
        is_open=is_suspended(document),
        document=document,
        place=place,
    )


def _pods_of(document: Mapping[str, Any]) -> tuple[str, int]:
    """Return the pointer of the template whose pods train, and their number."""
    kind, spec = text_in(document, "kind"), part(document, "spec")
    if kind == "TrainJob":
        return "/spec/trainer", _count(part(spec, "trainer", "numNodes"))
    if kind == "Job":
        return "/spec/template", _count(part(spec, "parallelism"))
    entries = list_in(spec, "replicatedJobs") if kind == "JobSet" else []
    if len(entries) != 1:
        raise ChangeRefusedError(
            f"the {scrub(kind, limit=40) or 'object'} has {len(entries)} replicated jobs",
            "Give a Job, a TrainJob, or a JobSet of one replicated job.",
        )
    inner = part(entries[0], "template", "spec")
    pods = _count(part(entries[0], "replicas")) * _count(part(inner, "parallelism"))
    return "/spec/replicatedJobs/0/template/spec/template", pods


def _count(value: object) -> int:
    count = 1 if value is None else whole_number(value)
    if not count:
        raise ChangeRefusedError(f"{scrub(repr(value), limit=40)} pods", "Give 1 or more.")
    return count


def _whole_gpus(container: Any) -> int:
    """Return the GPUs of a container, or of a TrainJob's node. Errors: ChangeRefusedError."""
    resources = part(container, "resources") or part(container, "resourcesPerNode")
    requests = requests_of({"containers": [{"resources": resources}]})
    if any(request.shared or request.mig_profile for request in requests):
        raise ChangeRefusedError("it asks for parts of GPUs", "A training run takes whole ones.")
    return sum(request.count for request in requests)


def _recipe(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = scrub(str(error), limit=120)
        raise ChangeRefusedError(f"{where} is not valid TOML: {reason}", "Mend it.") from error


def _after(mark: str, lines: Sequence[str]) -> list[str]:
    return [line.removeprefix(mark) for line in lines if line.startswith(mark)]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote that does not close: part of a longer text
        return []


def _lines_of(text: str) -> list[str]:
    """Return the lines of a shell's text, each command and each variable whole on one."""

    def on_one_line(variable: re.Match[str]) -> str:
        words = _words(variable[2] or variable[3] or "")
        return f"{variable[1]}{shlex.quote(shlex.join(words))}" if words else variable[0]

    return _LONG.sub(on_one_line, text.replace("\\\n", " ")).splitlines()


def _commands(
    lines: Sequence[str], variables: Mapping[str, str], environment: Iterable[str] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the words of each line that starts a program, with the variables that are known.

    Those of its environment that launchers read stand before it.

    Errors: ChangeRefusedError for lines that variables of one another make endless.
    """
    values = {name: value for name, value in variables.items() if value}
    exported = dict.fromkeys(environment)
    count = 0

    def as_one_word(variable: re.Match[str]) -> str:
        value = values.get(variable[1] or variable[2])
        return variable[0] if value is None else shlex.quote(value)

    for line in lines:
        # Before they are put in: a short line can ask for gigabytes.
        count += len(line) + sum(len(values.get(name, "")) for name in _NAMED.findall(line))
        if count > _MAX_CHARACTERS:
            raise ChangeRefusedError(
                f"its lines are longer than {_MAX_CHARACTERS:,} characters", "Give shorter ones."
            )
        text = _QUOTED.sub(as_one_word, _ALL.sub(r"${\1}", line))
        # In the quotes of a container's word a variable is replaced as well.
        words = _words(Template(text).safe_substitute(values))
        if words[:1] == ["export"]:
            words = words[1:]
            exported |= dict.fromkeys(word.partition("=")[0] for word in words)
        if all(map(ASSIGNMENT.fullmatch, words)):
            values |= {name: value for name, _equals, value in (w.partition("=") for w in words)}
        elif any(map(_STARTS.fullmatch, words)):
            names = [name for name in exported if name in values and name in _ENVIRONMENT]
            yield (*(f"{name}={values[name]}" for name in names), *words)


def _read_names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.lower() for name in _TRIMTAB_VARIABLE.findall(text)))


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return the options of sbatch that say how large a job is; of two the last counts."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("nodes", "gpus", "gpus-per-node", "gres", "time", "partition", "export"):
        short = {"nodes": ["-N"], "gpus": ["-G"], "time": ["-t"], "partition": ["-p"]}
        parser.add_argument(f"--{name}", *short.get(name, ()), dest=name, default="")
    try:
        options = vars(parser.parse_known_args(list(words))[0])
    except argparse.ArgumentError as error:
        raise ChangeRefusedError(f"its options: {error}", "Mend them.") from error
    nodes = options["nodes"]
    if nodes and not re.fullmatch(r"[1-9]\d{0,5}(-\d+)?", nodes, re.ASCII):
        raise ChangeRefusedError(f"--nodes={scrub(nodes, limit=40)}", "Give 1 or more.")
    return {name: value for name, value in options.items() if value}


def _gpus(options: Mapping[str, str], nodes: int) -> tuple[str, int | None]:
    """Return (word of the GPU type, GPUs of a node) that sbatch is asked for, None for none."""
    name = next((name for name in GPU_OPTIONS if name in options), "")
    texts = options.get(name, "").split(",")
    if name == "gres":
        texts = [text for text in texts if text.removeprefix("gres:").startswith("gpu")]
    if not name or not texts:
        return "", None
    match = _GPUS.fullmatch(texts[0]) if len(texts) == 1 else None
    count = int(match[2] or 1) if match else 0
    each, rest = divmod(count, nodes if name == "gpus" else 1)
    if match is None or rest or not each:
        raise ChangeRefusedError(
            f"--{name}={scrub(options[name], limit=40)} on {nodes} nodes",
            "Give one type, and as many to each node.",
        )
    return match[1] or "", each


def _hours(text: str) -> float | None:
    try:
        seconds = seconds_of_limit(text)
    except ValueError as error:
        word = scrub(text, limit=40)
        raise ChangeRefusedError(f"--time={word}", "Give one that sbatch takes.") from error
    return seconds and seconds / SECONDS_PER_HOUR
