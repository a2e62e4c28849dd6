"""The words of a launch command: the launcher's options, the program, its flags and files.

The files that launchers read: YAML, JSON and TOML of any origin, as flat keys and values.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from dashboard.submission.launchers.fields import (
    CONFIG,
    FALSE,
    FIELDS,
    LAUNCHER,
    SERVING,
    TRUE,
    LaunchDialect,
    Statements,
    dialect,
)
from data.base.errors import ChangeRefusedError, scrub
from data.base.files import read_small_file

FRAMEWORKS = (
    "nemo", "verl", "axolotl", "torchtitan", "llamafactory", "swift", "megatron", "vllm", "tgi",
    "trl",
)  # fmt: skip
SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_MAX_BYTES = 256 << 10
_MAX_ALIASES = 8
_MAX_KEYS = 10_000
_MAX_DEPTH = 12


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader that follows few aliases: a handful of lines could mean gigabytes."""

    aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return a node, after counting the aliases so far."""
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > _MAX_ALIASES:
                raise yaml.YAMLError(f"it has more than {_MAX_ALIASES} aliases")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Return a mapping. Errors: YAMLError for a key that stands in it twice."""
        keys = [
            (key.tag, key.value) for key, _value in node.value if isinstance(key, yaml.ScalarNode)
        ]
        _require_once([value for tag, value in keys if not tag.endswith(":merge")])
        return super().construct_mapping(node, deep)


def _require_once(keys: Sequence[str]) -> None:
    """Errors: YAMLError for a key that stands twice: nobody can tell which value is meant."""
    twice = next((key for key, count in Counter(keys).items() if count > 1), None)
    if twice is not None:
        raise yaml.YAMLError(f"the key {twice} stands in it twice")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require_once([key for key, _value in pairs])
    return dict(pairs)


def read_document(path: Path) -> dict[str, Any]:
    """Return the flat keys of a file with their values: numbers, words, lists of words.

    Errors: ChangeRefusedError naming the file and what is wrong with it.
    """
    try:
        body = read_small_file(path, max_bytes=_MAX_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or "it is not a path"
        raise _refused(path, reason, "Give the path of the launcher's file.") from error
    try:
        document = _parsed(body.decode("utf-8"), path.suffix.lower())
    except (ValueError, RecursionError, OverflowError, yaml.YAMLError) as error:
        nested = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if nested else scrub(str(error), limit=160)
        kind = path.suffix.lower().removeprefix(".").upper()
        raise _refused(path, reason, f"Mend it: it must be {kind}.") from error
    return flat(document, path)


def read_object(text: str, flag: str) -> dict[str, Any]:
    """Return the flat keys of a JSON object that a flag gives in place of a file.

    Errors: ChangeRefusedError naming the flag and what is wrong with its value.
    """
    try:
        document = _parsed(text, ".json")
    except (ValueError, RecursionError) as error:
        reason = f"its value is no JSON: {scrub(str(error), limit=120)}"
        raise _refused(Path(flag), reason, "Mend it, or give a file.") from error
    return flat(document, Path(flag))


def flat(document: Any, path: Path) -> dict[str, Any]:
    """Return the leaves of a document by their dotted keys. Errors: ChangeRefusedError."""
    if not isinstance(document, Mapping):
        raise _refused(path, "it holds no keys", "Give a file of keys and values.")
    values: dict[str, Any] = {}
    for key, value in _leaves(document, path, depth=0):
        values[key] = value
        if len(values) > _MAX_KEYS:
            raise _refused(path, f"it has more than {_MAX_KEYS:,} keys", "Give a smaller file.")
    return values


def _refused(path: Path, reason: str, fix: str) -> ChangeRefusedError:
    return ChangeRefusedError(f"cannot read {scrub(str(path), limit=120)}: {reason}", fix)


def _parsed(text: str, suffix: str) -> Any:
    if suffix == ".json":
        return json.loads(text, object_pairs_hook=_once)
    if suffix == ".toml":
        return tomllib.loads(text)
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader


def _leaves(
    table: Mapping[Any, Any], path: Path, *, depth: int, above: str = ""
) -> Iterator[tuple[str, Any]]:
    if depth > _MAX_DEPTH:
        raise _refused(path, f"it is nested deeper than {_MAX_DEPTH}", "Give a flatter file.")
    for name, value in table.items():
        key = f"{above}{str(name).strip().replace('-', '_')}"
        if isinstance(value, Mapping):
            yield from _leaves(value, path, depth=depth + 1, above=f"{key}.")
        elif isinstance(value, list):
            if all(isinstance(entry, str | int | float) for entry in value):
                yield key, value
        else:
            yield key, value


def framework_of(keys: Mapping[str, Any], path: Path) -> LaunchDialect:
    """Return the framework of a file, by the keys that only this framework has.

    Errors: ChangeRefusedError for a file that describes no job, such as a launcher's alone.
    """
    for name in FRAMEWORKS:
        if any(mark in keys for mark in dialect(name).marks):
            return dialect(name)
    if "model_name_or_path" in keys:
        return dialect("trl")
    for name in ("accelerate", "deepspeed_file"):
        if sum(dialect(name).field_of(key) is not None for key in keys) > 1:
            raise _refused(
                path,
                "it says how processes are spread, and nothing of the model",
                "Give the whole command: trimtab estimate -- accelerate launch ... train.py ...",
            )
    raise _refused(
        path,
        "it is none of the known files",
        f"Known are those of {', '.join(FRAMEWORKS)}, or give the command after --.",
    )


LINE = "the command line"
MAX_WORDS = 2000
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_OVERRIDE = re.compile(r"\+{0,2}([a-z_][\w.]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"-\.?\d")
_SHELL = re.compile(r"[|&;<>]|\d>")
"""What ends a command in a shell, or leads its output elsewhere."""
_HOSTS = re.compile(r"[\w.-]+:\d+(,\d+)*(@[\w.-]+:\d+(,\d+)*)*")
_DEVICES = re.compile(r"[\w/-]+(,[\w/-]+)*")
_WRAPPERS = {"env": 1, "exec": 1, "nohup": 1, "time": 1, "uv": 2, "poetry": 2, "pixi": 2}
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
_STAGES = ("sft", "dpo", "grpo", "ppo", "kto", "rloo", "orpo", "cpo", "reward")


@dataclass(slots=True)
class Launch:
    """State of reading: the framework's dialect, what was stated, the files it came from.

    Without a `folder` no file is read: the command is of another machine.
    """

    folder: Path | None
    syntax: LaunchDialect | None = None
    facts: Statements = field(default_factory=Statements)
    files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


def read_command(words: Sequence[str], folder: Path | None) -> Launch:
    """Return the content of a launch command and of the files that it names, from `folder`.

    None: it is refused where it names one.

    Errors: ChangeRefusedError naming the word and what would be right.
    """
    if len(words) > MAX_WORDS:
        raise ChangeRefusedError(
            f"the command has {len(words):,} words", f"Give at most {MAX_WORDS:,}."
        )
    launch = Launch(folder=folder)
    command = takewhile(lambda word: not _SHELL.match(word), words)
    rest = _after_launchers(launch, _after_variables(launch, list(command)))
    if not rest:
        raise ChangeRefusedError(
            "the command names no program to start", "Give it as you would start it."
        )
    _read_program(launch, rest)
    syntax, general = launch.syntax or dialect("transformers"), dialect("environment")
    # Behind the command, as what its flags say otherwise goes before them.
    for name, value in launch.variables.items():
        is_flag = syntax.environment and syntax.field_of(name.lower()) is not None
        table, key = (syntax, name.lower()) if is_flag else (general, name)
        launch.facts.add(table, key, value, origin=LINE, rank=LAUNCHER)
    _read_named_files(launch)
    return launch


def read_file(path: Path) -> Launch:
    """Return the content of a framework's file, with the files that it names."""
    launch = Launch(folder=path.parent)
    keys = read_document(path)
    launch.syntax = framework_of(keys, path)
    for key, value in keys.items():
        launch.facts.add(launch.syntax, key, value, origin=path.name)
    launch.files.append(path.name)
    _read_named_files(launch)
    return launch


def _after_variables(launch: Launch, words: list[str]) -> list[str]:
    """Take variables and programs that only wrap another from the front."""
    while words:
        assigned = ASSIGNMENT.fullmatch(words[0])
        if assigned and "/" not in assigned[1]:
            if assigned[1] == "CUDA_VISIBLE_DEVICES" and not _DEVICES.fullmatch(assigned[2]):
                launch.facts.leave_open(
                    "processes_per_node", assigned[2], flag=assigned[1], origin=LINE
                )
            elif assigned[1] == "CUDA_VISIBLE_DEVICES":
                count = len(assigned[2].split(","))
                launch.facts.put(
                    "processes_per_node", count, flag=assigned[1], origin=LINE, rank=LAUNCHER
                )
            else:
                launch.variables[assigned[1]] = assigned[2]
            words = words[1:]
        elif words[0].rpartition("/")[2] == "srun":
            words = _after_srun(launch, words[1:])
        elif words[0] in _WRAPPERS:
            words = words[_WRAPPERS[words[0]] :]
            while words and words[0].startswith("-") and "=" in words[0]:
                words = words[1:]
        else:
            break
    return words


def _after_srun(launch: Launch, words: list[str]) -> list[str]:
    """Take srun's options; what they say of nodes and GPUs holds where no launcher says it."""
    syntax = dialect("srun")
    while words and words[0].startswith("-"):
        word, words = words[0], words[1:]
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            key = key.replace("-", "_")
        else:
            key, value = word[1:2], word[2:]
            equals = value
        if not equals and key not in syntax.switches:
            value, words = "".join(words[:1]), words[1:]
        if key == "ntasks_per_node" and value == "1":
            continue  # one launcher a node, which starts the processes
        # srun takes "h100:8" for the type and number of GPUs, and "2-4" for a range of nodes.
        number = _gpu_count(key, value) if key in ("gpus", "G", "gpus_per_node", "gres") else value
        rank = LAUNCHER + (2 if key.startswith("ntasks") else 1)
        if syntax.field_of(key) and number.isdigit():
            launch.facts.add(syntax, key, number, origin=LINE, rank=rank)
        elif syntax.field_of(key) or key.startswith("gpus_per"):
            target = syntax.field_of(key) or "processes_per_node"
            launch.facts.leave_open(target, value, flag=f"srun {key}", origin=LINE)
    return words


def _gpu_count(key: str, value: str) -> str:
    """Return the GPUs that an option of srun asks for, '' where it does not tell a number."""
    entries = value.split(",")
    if key == "gres":  # "gpu" and "gpu:h100" are one GPU
        entries = [entry for entry in entries if entry.partition(":")[0] == "gpu"]
    counts = [entry.rpartition(":")[2] for entry in entries]
    if key == "gres":
        counts = [count if count.isdigit() else "1" for count in counts]
    is_number = counts and all(count.isdigit() for count in counts)
    return str(sum(map(int, counts))) if is_number else ""


def _after_launchers(launch: Launch, words: list[str]) -> list[str]:
    """Take the launcher and its options from the front; what is left begins with the program."""
    name, rest = _program(words)
    launcher = _MODULES.get(name, name)
    if launcher == "accelerate" and rest[:1] == ["launch"]:
        rest = rest[1:]
    if launcher not in {"torchrun", "accelerate", "deepspeed"} or (name == launcher and not rest):
        return words
    syntax = dialect(launcher)
    while rest and rest[0].startswith("-"):
        key, equals, value = rest[0].lstrip("-").partition("=")
        key, rest = key.replace("-", "_"), rest[1:]
        if not equals:
            value, rest = _launcher_value(syntax, key, rest)
        _say(launch, syntax, key, value)
    return rest


def _launcher_value(syntax: LaunchDialect, key: str, rest: list[str]) -> tuple[str, list[str]]:
    is_alone = key in syntax.switches and rest and rest[0].lower() not in TRUE | FALSE
    if is_alone or not rest or rest[0].startswith("-") or rest[0].endswith(".py"):
        return "true", rest
    return rest[0], rest[1:]


def _say(launch: Launch, syntax: LaunchDialect, key: str, value: str) -> None:
    if key == "nnodes" and ":" in str(value):
        raise ChangeRefusedError(
            f"nnodes of {LINE} is {scrub(repr(value), limit=40)}", "Give one number of nodes."
        )
    if key == "include":  # DeepSpeed's boards of each host: worker-0:0,1@worker-1:2
        if not _HOSTS.fullmatch(value):
            launch.facts.leave_open("gpus", value, flag=key, origin=LINE)
            return
        value = str(len(re.findall(r"[:,]", value)))
    launch.facts.add(syntax, key, value, origin=LINE)


def _program(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of the program or Python module that words start, and what follows it."""
    if not words:
        return "", []
    first = words[0].rpartition("/")[2]
    if not first.startswith("python") or len(words) == 1:
        return first, list(words[1:])
    after = 1
    while after < len(words) and words[after].startswith("-") and words[after] != "-m":
        after += 1
    if words[after : after + 1] == ["-m"]:
        after += 1
    name = words[after] if after < len(words) else ""
    return name.rpartition("/")[2], list(words[after + 1 :])


def _read_program(launch: Launch, words: list[str]) -> None:
    name, rest = _program(words)
    syntax = dialect("megatron_swift") if name == "megatron" else _by_name(name)
    if name in {"vllm", "sglang", "axolotl", "llamafactory-cli", "swift", "megatron", "trl"}:
        name, rest = (rest[0] if rest else ""), rest[1:]
    flags, loose = _flags_of(rest, syntax)
    if syntax is None or syntax.name == "trl":
        syntax = _by_flags(flags, syntax) or _by_file(launch, loose)
        flags, loose = _flags_of(rest, syntax)
    launch.syntax = syntax
    stage = next((text for text in _STAGES if text in re.split(r"[_.\-/]", name.lower())), "")
    if stage and syntax.name in {"trl", "swift", "llamafactory"}:
        launch.facts.put("stage", stage, flag=scrub(name, limit=60), origin=LINE)
    for key, values in flags:
        if values[0].startswith("{"):
            for inner, value in read_object(values[0], key).items():
                launch.facts.add(syntax, f"{key}.{inner}", value, origin=LINE)
        else:
            launch.facts.add(syntax, key, values[0] if len(values) == 1 else values, origin=LINE)
    for word in loose:
        if word.endswith(SUFFIXES):
            _take_file(launch, syntax, word, rank=CONFIG)
        elif syntax.name in SERVING:
            launch.facts.put("model", word, flag="model", origin=LINE)


def _by_name(name: str) -> LaunchDialect | None:
    for text in ("sglang", "torchtitan", "nemo", "megatron", *FRAMEWORKS):
        if re.search(rf"(^|[_.\-/])({dialect(text).scripts})([_.\-/]|$)", name.lower()):
            return dialect(text)
    return None


def _by_flags(
    flags: Sequence[tuple[str, list[str]]], default: LaunchDialect | None
) -> LaunchDialect | None:
    """Return the dialect that knows most of the flags, None when none knows any.

    Where others know no more, it is the one of the program's name: many call theirs sft.py.
    """
    names = (
        *([default.name] if default else []),
        "transformers",
        "trl",
        "megatron",
        "torchtitan",
        "verl",
        "swift",
        "llamafactory",
    )
    counts = {
        name: sum(dialect(name).field_of(key) is not None for key, _ in flags) for name in names
    }
    best = max(names, key=lambda name: counts[name])
    return dialect(best) if counts[best] else default


def _by_file(launch: Launch, loose: Sequence[str]) -> LaunchDialect:
    for word in loose:
        if word.endswith(SUFFIXES):
            path = path_of(launch, word)
            return framework_of(read_document(path), path)
    raise ChangeRefusedError(
        "the command has no flag that says anything of the job's memory",
        "Give it with its flags, or its file: trimtab estimate -- torchrun train.py --config F.",
    )


def _flags_of(
    words: Sequence[str], syntax: LaunchDialect | None
) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """Return flags with their values, and the words that belong to none."""
    flags: list[tuple[str, list[str]]] = []
    loose: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        override = _OVERRIDE.fullmatch(word)
        if not _is_flag(word):
            if override:
                flags.append((override[1], [override[2]]))
            else:
                loose.append(word)
            continue
        key, equals, value = word.lstrip("-").partition("=")
        name = key.replace("-", "_")
        if equals:
            flags.append((name, [value]))
            continue
        if syntax and syntax.field_of(name) == "optimizer_arguments":
            flags.append((name, list(words[index : index + 1])))
            index += 1
            continue
        behind = takewhile(
            lambda text: not _is_flag(text) and not _OVERRIDE.fullmatch(text), words[index:]
        )
        values = list(behind)
        index += len(values)
        mine, others = _split(syntax, name, values)
        flags.append((name.removeprefix("no_"), ["false"]) if mine is None else (name, mine))
        loose += others
    # A variable that nobody set may stand for any flags.
    flags += [(word, [""]) for word in loose if word.startswith("$")]
    return flags, loose


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.match(word)


def _split(
    syntax: LaunchDialect | None, name: str, values: list[str]
) -> tuple[list[str] | None, list[str]]:
    """Return a flag's own values and the words that only stood behind it; None for `--no-x`."""
    if not values and name.startswith("no_") and syntax and syntax.field_of(name[3:]):
        return None, []
    target = syntax.field_of(name) if syntax else ""
    kind = FIELDS[target].name if target else ""
    is_switch = bool(syntax and name in syntax.switches)
    is_file = kind == "flag" and values[:1] and values[0].endswith(SUFFIXES)
    if values and (is_switch or is_file) and values[0].lower() not in TRUE | FALSE:
        return ["true"], values
    if kind in {"words", ""} or target == "fsdp_words":
        return values or ["true"], []
    return values[:1] or ["true"], values[1:]


def _take_file(
    launch: Launch, syntax: LaunchDialect, name: str, *, rank: int = 0, strict: bool = False
) -> None:
    path = path_of(launch, name)
    for key, value in read_document(path).items():
        launch.facts.add(syntax, key, value, origin=path.name, rank=rank, strict=strict)
    launch.files.append(path.name)
    if launch.folder is not None and path != launch.folder / name:
        launch.folder = path.parent


def path_of(launch: Launch, name: str) -> Path:
    """Return the path of a named file: in the folder of the launch, or as the path says.

    Errors: ChangeRefusedError where no file may be read.
    """
    if launch.folder is None:
        raise _refused(
            Path(name), "it is a file of the job's own machine", "Give its content as flags."
        )
    local = launch.folder / name
    return local if local.exists() else Path(name)


def _read_named_files(launch: Launch) -> None:
    """Read the files that flags and keys name: of the framework, accelerate, DeepSpeed, FSDP."""
    syntax = launch.syntax or dialect("transformers")
    takers: dict[str, Callable[[str], None]] = {
        "config_file": lambda name: _take_file(launch, syntax, name, rank=CONFIG),
        "accelerate_file": lambda name: _take_accelerate(launch, name),
        "fsdp_file": lambda name: _take_file(launch, dialect("fsdp_file"), name, strict=True),
        "deepspeed_file": lambda name: _take_deepspeed(launch, name),
    }
    for target, take in takers.items():
        stated = launch.facts.items.pop(target, None)
        if stated and str(stated.value).lower() not in FALSE | TRUE:
            take(str(stated.value))


def _take_accelerate(launch: Launch, name: str) -> None:
    """Take a file of accelerate, or the profile of TRL that is called so."""
    if name.endswith(SUFFIXES):
        _take_file(launch, dialect("accelerate"), name, rank=LAUNCHER)
    elif name.startswith("fsdp"):
        launch.facts.put("fsdp", True, flag="accelerate_config", origin=LINE)
    else:
        _take_deepspeed(launch, name)


def _take_deepspeed(launch: Launch, name: str) -> None:
    """Take a DeepSpeed file; of one that is not here what its name says (zero3, offload)."""
    match = re.search(r"(?:zero|z)_?([0123])(.*)", Path(name).name.lower())
    is_here = launch.folder is not None and path_of(launch, name).exists()
    if is_here or not match:
        _take_file(launch, dialect("deepspeed_file"), name, strict=True)
        launch.facts.put("deepspeed", True, flag="deepspeed", origin=Path(name).name)
        return
    launch.facts.put("zero_stage", match[1], flag="deepspeed", origin=name)
    if "offload" in match[2]:
        launch.facts.put("offload_optimizer", True, flag="deepspeed", origin=name)
    if "offload" in match[2] and match[1] == "3":
        launch.facts.put("offload_parameters", True, flag="deepspeed", origin=name)
    launch.notes.append(f"{scrub(name, limit=80)} is not here: read by its name")
