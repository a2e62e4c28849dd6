"""One recipe, one estimate, however it is spelled.

A blank or an equals sign, dashes, quotes, another order, YAML, JSON, TOML, the environment, a
batch script with variables and continued lines, the container of a pod; numbers and switches in all
their forms.
"""

import json
import random
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st

from dashboard.submission.launchers.command_line import LINE
from dashboard.submission.launchers.fields import FIELDS, SERVING, LaunchDialect, dialect
from dashboard.submission.launchers.launched_job import LaunchedJob, LaunchOptions, launched_job
from dashboard.submission.launchers.scheduled_job import ScheduledJob, read_object, read_script
from data.base.errors import TrimtabError
from planner.memory.estimate.bounds import Tier
from planner.memory.estimate.predictor import predict_peak

MODEL = "llama3-8b"
STARTS = {
    "transformers": f"python t.py --model_name_or_path {MODEL}",
    "trl": f"trl sft --model_name_or_path {MODEL}",
    "axolotl": f"axolotl train --base_model {MODEL}",
    "llamafactory": f"llamafactory-cli train --model_name_or_path {MODEL}",
    "swift": f"swift sft --model {MODEL}",
    "megatron": f"python pretrain_gpt.py --model {MODEL}",
    "megatron_swift": f"megatron sft --model {MODEL}",
    "torchtitan": "torchrun -m torchtitan.train --model.name llama3 --model.flavor 8B",
    "verl": f"python -m verl.trainer.main_ppo actor_rollout_ref.model.path={MODEL}",
    "nemo": f"python megatron_gpt_finetuning.py model.restore_from_path={MODEL}",
    "vllm": f"vllm serve --model {MODEL}",
    "sglang": f"python -m sglang.launch_server --model_path {MODEL}",
    "tgi": f"text-generation-launcher --model-id {MODEL}",
}
"""The beginning of a command in each dialect."""
PREFIXES = {
    "torchrun": "torchrun",
    "accelerate": "accelerate launch",
    "deepspeed": "deepspeed",
    "srun": "srun",
}
"""Launchers before a Python program; what accelerate is told may stand in a file or variables."""
INNER = {"deepspeed_file": "deepspeed", "fsdp_file": "fsdp_config"}
"""Files of others, and the key of a Hugging Face trainer that names one or holds what is in it."""
BESIDE = ("", *PREFIXES, *INNER)
VARIABLES = {target: name for name, target in dialect("environment").flags.items() if target}
"""A variable for each field that one fills."""
NODE = ("srun", "--nodes=1", "--gpus-per-node=8")
FILES = {"config_file", "accelerate_file", "fsdp_file", "deepspeed_file", "model_config", "model",
         "titan_name", "titan_flavor"}  # fmt: skip
WORDS = {
    "flag": ("true", "false"),
    "whole": ("1", "2", "4", "20000"),
    "number": ("0.25", "0.5"),
    "words": ("q_proj,v_proj", "all-linear"),
}
TABLES = tomllib.loads(
    files("dashboard.submission.launchers").joinpath("dialects.toml").read_text("utf-8")
)
KNOWN: dict[str, str] = TABLES["known"]
TOLD = {name: " ".join(table.values()).split() for name, table in TABLES["words"].items()}
"""The words of fields that are told by words, once translated and before."""
FORMS = {
    "true": ("true", "True", "TRUE", "yes", "on", "1"),
    "false": ("false", "False", "FALSE", "no", "off", "0"),
}
UNKNOWN = "fnord"
FREE = {"reward_model", "saved", "optimizer_arguments", "targets", "optimizer_layerwise"}
"""Fields that take any word: names of models and layers, and what only their own reader parses."""


KEYS = {
    name: sorted(
        key
        for key, target in dialect(name).flags.items()
        if len(key) > 1
        and target not in FILES
        and not (target == "stage" and " sft" in STARTS.get(name, ""))
    )
    for name in (*STARTS, *PREFIXES, *INNER)
}
"""All keys but the names of models and files, and a stage that the command's name says already."""


def values_of(name: str, key: str) -> tuple[str, ...]:
    """The words of the table, those of the kind of field, and one that nobody knows."""
    spoken = dialect(name)
    own = (word for word in spoken.words.get(key, {}) if word not in ("to", "*"))
    target = spoken.flags[key]
    kind = WORDS.get(FIELDS[target].name, ()) if target else ()
    if not own and not kind:
        kind = tuple(dict.fromkeys((*KNOWN.get(target, "").split(), *TOLD.get(target, ()))))
    return (*own, *kind, *([] if key in spoken.switches else [UNKNOWN]))


def forms_of(spoken: LaunchDialect, key: str, value: str) -> tuple[str, ...]:
    """All ways to write a value of a key: a switch, a whole number, a share, a list."""
    target = spoken.field_of(key)
    is_plain = spoken.name == "srun" or key == "include"
    kind = FIELDS[target].name if target and not is_plain else ""
    own = spoken.words.get(spoken.plain(key), {})
    if value in FORMS and (kind == "flag" or own):
        return tuple(form for form in FORMS[value] if form == value or form.lower() not in own)
    if kind == "whole" and value.isdigit() and not own:
        number = int(value)
        return (value, f"{number}.0", f"{number:_}", f"{number:e}", f"{number / 1e4:g}e4")
    if kind == "number" and value.startswith("0."):
        return (value, value[1:], f"{value}0", f"{float(value) * 10:g}e-1")
    return (value, value.replace(",", " ")) if kind == "words" else (value,)


@dataclass(frozen=True)
class Recipe:
    """Keys with their values of a dialect, and those of a launcher or of another file beside it."""

    name: str
    values: dict[str, str]
    beside: str = ""
    others: dict[str, str] = field(default_factory=dict)


def recipe_of(name: str, said: dict[str, str]) -> Recipe:
    """The recipe of these keys of a dialect, or of what stands beside a Hugging Face trainer."""
    return Recipe(name, said) if name in STARTS else Recipe("transformers", {}, name, said)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """A dialect, up to three of its keys, and up to two of other fields of what is beside it."""
    name = draw(st.sampled_from(sorted(STARTS)))
    beside = draw(st.sampled_from(BESIDE)) if name == "transformers" else ""
    values = drawn_of(draw, name, least=0 if KEYS.get(beside) else 1, most=3)
    said = {dialect(name).flags[key] for key in values}
    others = drawn_of(draw, beside, least=1, most=2, said=said) if KEYS.get(beside) else {}
    return Recipe(name, values, beside, others)


def drawn_of(
    draw: st.DrawFn, name: str, *, least: int, most: int, said: Iterable[str] = ()
) -> dict[str, str]:
    """Keys of a dialect that fill none of the fields that are said already, with their values."""
    spoken = dialect(name)
    free = [key for key in KEYS[name] if not spoken.flags[key] or spoken.flags[key] not in said]
    keys = draw(st.lists(st.sampled_from(free), min_size=least, max_size=most, unique=True))
    assume(not any(key.startswith(f"{other}.") for key in keys for other in keys))
    return {key: draw(st.sampled_from(values_of(name, key))) for key in keys}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a file with a table for each dot."""
    tables: dict[str, Any] = {}
    for key, value in values.items():
        *above, last = key.split(".")
        table = tables
        for part in above:
            table = table.setdefault(part, {})
        table[last] = value
    return tables


def typed(value: str) -> Any:
    """A value as a file has it: a number, true or false, a list, else the text."""
    return value.split() if " " in value else yaml.safe_load(value)


def toml(values: Mapping[str, Any]) -> str:
    """Text of TOML, whose values are written as those of JSON."""
    return "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())


class Spelling:
    """One way to write a recipe, with the form of each value and the order of keys by the dice."""

    def __init__(self, recipe: Recipe, folder: Path, dice: random.Random) -> None:
        self.recipe, self.folder, self.dice = recipe, folder, dice

    def pairs(self, name: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
        """Keys with one form of each value, in any order."""
        spoken = dialect(name)
        pairs = [
            (key, self.dice.choice(forms_of(spoken, key, value))) for key, value in values.items()
        ]
        self.dice.shuffle(pairs)
        return pairs

    def options(self, name: str, values: Mapping[str, str], how: str) -> list[str]:
        """The same as options: after a blank or an equals sign, with dashes, bare or denied."""
        spoken, words = dialect(name), []
        for key, form in self.pairs(name, values):
            flag = f"--{key.replace('_', '-') if 'dash' in how else key}"
            target = spoken.flags[key]
            is_flag = bool(target) and FIELDS[target].name == "flag"
            if (
                "bare" in how
                and values[key] == "true"
                and ((is_flag and name in STARTS) or key in spoken.switches)
            ):
                words.append(flag)
            elif "bare" in how and values[key] == "false" and is_flag and name in STARTS:
                words.append(f"--no-{flag[2:]}")
            elif "blank" in how:
                words += [flag, *form.split()]
            else:
                words.append(f"{flag}={form}")
        return words

    def file(self, name: str, text: str) -> str:
        """Write a file and name it."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def document(self, name: str, values: Mapping[str, str]) -> dict[str, Any]:
        """The same as a file has it."""
        return {key: typed(form) for key, form in self.pairs(name, values)}

    def before(self, how: str = "") -> list[str]:
        """The launcher with its options."""
        recipe = self.recipe
        words = PREFIXES.get(recipe.beside, "").split()
        return [*words, *self.options(recipe.beside, recipe.others, how)] if words else []

    def behind(self, how: str = "") -> list[str]:
        """The trainer's option that names a file of others, or holds what is in it."""
        recipe = self.recipe
        if recipe.beside not in INNER:
            return []
        text = json.dumps(nested(self.document(recipe.beside, recipe.others)))
        flag = f"--{INNER[recipe.beside]}"
        if "inline" in how:
            return [f"{flag}={text}"]
        return [flag, self.file("inner.json", text)]

    def command(self, how: str) -> list[str]:
        """The whole as options."""
        recipe = self.recipe
        start, own = shlex.split(STARTS[recipe.name]), self.options(recipe.name, recipe.values, how)
        return [*self.before(how), *start, *self.behind(how), *own]

    def by_file(self, suffix: str, text: str) -> list[str]:
        """The whole with the framework's own file."""
        start = shlex.split(STARTS[self.recipe.name])
        return [*self.before(), *start, *self.behind(), self.file(f"recipe.{suffix}", text)]

    def all(self) -> Iterator[tuple[str, list[str]]]:
        """A command for each way to say the same."""
        recipe = self.recipe
        name, values, spoken = recipe.name, recipe.values, dialect(recipe.name)
        start = shlex.split(STARTS[name])
        for how in ("=", "dash", "blank", "dash blank", "bare", "dash bare blank", "inline"):
            yield how, self.command(how)
        if not spoken.switches:
            pairs = (f"{key}={form}" for key, form in self.pairs(name, values))
            yield "override", [*self.before(), *start, *self.behind(), *pairs]
        document = self.document(name, values)
        yield "yaml", self.by_file("yaml", yaml.safe_dump(nested(document)))
        yield "json", self.by_file("json", json.dumps(nested(document)))
        yield "text.json", self.by_file("json", json.dumps(nested(values)))
        if None not in document.values():
            yield "toml", self.by_file("toml", toml(document))
        if spoken.environment:
            variables = (f"{key.upper()}={form}" for key, form in self.pairs(name, values))
            yield "environment", [*variables, *start]
        if recipe.beside == "accelerate":
            document = self.document("accelerate", recipe.others)
            for suffix, text in (
                ("yaml", yaml.safe_dump(document)),
                ("json", json.dumps(document)),
            ):
                option = ["--config_file", self.file(f"launch.{suffix}", text)]
                own = self.options(name, values, "")
                yield f"accelerate.{suffix}", ["accelerate", "launch", *option, *start, *own]
            if all(dialect("accelerate").flags[key] in VARIABLES for key in recipe.others):
                variables = (
                    f"{VARIABLES[dialect('accelerate').flags[key]]}={form}"
                    for key, form in self.pairs("accelerate", recipe.others)
                )
                own = self.options(name, values, "blank")
                yield "accelerate environment", [*variables, "accelerate", "launch", *start, *own]


def script(words: Sequence[str], dice: random.Random) -> str:
    """A batch script of a command: its lines go on, and some of its words stand in variables."""
    lines, parts, rest = ["#!/bin/bash", "#SBATCH --nodes=1 --gpus-per-node=8"], ["srun"], [*words]
    while rest:
        count = dice.choice((1, 1, 2, 3))
        some, rest = rest[:count], rest[count:]
        name, breaks = f"PART_{len(lines)}", dice.choice((" ", "\n  ", " \\\n  "))
        # The name of the program stands in the command.
        is_first = len(parts) == 1
        is_plain = not re.search(r"[\s{}\"]", "".join(some))
        how = dice.choice(("here", *(() if is_first else ("value", "array", *["text"] * is_plain))))
        if how == "value":
            flag, equals, value = some[0].partition("=")
            export = dice.choice(("", "export "))
            lines.append(f"{export}{name}={shlex.quote(value if equals else flag)}")
            spellings = (f'"${name}"', f'"${{{name}}}"', *[f"${name}"] * is_plain)
            parts.append(f"{flag}{equals}" * bool(equals) + dice.choice(spellings))
            parts += map(shlex.quote, some[1:])
        elif how == "text":
            lines.append(f'{name}="{breaks}{breaks.join(some)}"')
            parts.append(f"${name}")
        elif how == "array":
            lines.append(f"{name}=({breaks}{breaks.join(map(shlex.quote, some))}{breaks})")
            parts.append(f'"${{{name}[@]}}"')
        else:
            marks = "\"'" if is_plain else "'"
            parts += (f"{mark}{word}{mark}" for word in some for mark in dice.choice(marks))
        parts += ["\\\n"] * dice.choice((0, 1))
    return "\n".join([*lines, " ".join(parts)]) + "\n"


def pod(words: Sequence[str], dice: random.Random) -> dict[str, Any]:
    """A Job of Kubernetes with a command: as words, with variables, or as the text of a shell."""
    environment, args = [], []
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if equals and flag.startswith("--") and dice.random() < 0.5:
            environment.append({"name": f"PART_{index}", "value": value})
            word = f"{flag}=$(PART_{index})"
        args.append(word)
    container: dict[str, Any] = {"command": args[:1], "args": args[1:], "env": environment}
    if dice.random() < 0.5 and not environment:
        container = {"command": ["/bin/bash", "-c", " \\\n ".join(map(shlex.quote, args))]}
    container["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    spec = {"template": {"spec": {"containers": [container]}}}
    return {"kind": "Job", "metadata": {"name": "job"}, "spec": spec}


Answer = tuple[object, ...]


def answer(launched: Callable[[], LaunchedJob]) -> Answer:
    """The job with the engine's share and what was not read, or that it is refused."""
    try:
        read = launched()
    except TrimtabError:
        return ("refused",)
    unread = sorted(
        re.sub(rf"{LINE}|\w+\.(json|yaml|toml)(?=:)|ACCELERATE_", "", text)
        .replace("-", "_")
        .lower()
        for text in read.unread
    )
    return read.job, read.engine_share, unread


def with_length(recipe: Recipe) -> Recipe:
    """The same with a length, which an engine must have."""
    spoken = dialect(recipe.name)
    lengths = [key for key, target in spoken.flags.items() if target == "sequence_length"]
    if recipe.name not in SERVING or recipe.values.keys() & set(lengths):
        return recipe
    return replace(recipe, values={**recipe.values, lengths[0]: "512"})


def check(recipe: Recipe, folder: Path, throw: int = 0) -> None:
    """Fail unless all spellings of a recipe have one answer."""
    dice = random.Random(throw)  # noqa: S311 - no secret
    spelling, options = Spelling(with_length(recipe), folder, dice), LaunchOptions(folder=folder)
    answers = {
        how: answer(partial(launched_job, (*NODE, *words), options))
        for how, words in spelling.all()
    }
    for how in ("=", "bare blank", "dash"):
        words = spelling.command(f"{how} inline")
        text, shown = script(words, dice), pod(words, dice)
        answers[text] = answer(partial(scheduled, read_script, text))
        if recipe.name not in {"vllm", "tgi"}:  # a Job serves nothing
            answers[str(shown)] = answer(partial(scheduled, read_object, shown))
    assert len({repr(entry) for entry in answers.values()}) == 1, shown_of(recipe, answers)


def scheduled(read: Callable[[Any], ScheduledJob], text: str | dict[str, Any]) -> LaunchedJob:
    """The job of a batch script or an object."""
    return read(text).launched()


def shown_of(recipe: Recipe, answers: Mapping[str, Answer]) -> str:
    """The spellings by their answer."""
    ways: dict[str, list[str]] = {}
    for how, entry in answers.items():
        ways.setdefault(repr(entry), []).append(how)
    return "\n".join([str(recipe), *(f"{how}\n    {entry}" for entry, how in ways.items())])


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(recipe=recipes(), dice=st.integers(0, 1 << 30))
def test_every_spelling_of_a_recipe_has_one_estimate(
    recipe: Recipe, dice: int, tmp_path: Path
) -> None:
    """Whichever keys of a dialect are said, and however."""
    check(recipe, tmp_path, dice)


def test_two_words_that_nobody_knows_do_not_hang_on_their_order(tmp_path: Path) -> None:
    """Two keys of one field with one unknown word, in a file that sorts them."""
    check(Recipe("llamafactory", {"torch_dtype": UNKNOWN, "dtype": UNKNOWN}), tmp_path)


@pytest.mark.parametrize("gres", ["1", "gpu:4"])
def test_two_numbers_of_gpus_do_not_hang_on_their_order(gres: str, tmp_path: Path) -> None:
    """One that is understood counts, whichever stands first."""
    check(recipe_of("srun", {"gres": gres, "gpus_per_node": UNKNOWN}), tmp_path)


def test_nothing_is_a_word_where_a_table_has_it(tmp_path: Path) -> None:
    """A null of YAML is the null of a command, which here means no recomputation."""
    key = "activations_checkpoint_granularity"
    words = {f"model.{key}": "selective", "model.config.recompute_granularity": "null"}
    check(Recipe("nemo", words), tmp_path)


def test_what_a_script_exports_is_the_environment_of_its_command() -> None:
    """Of a script's variables those that it exports are read, as those before a command are."""
    sets = ("ACCELERATE_MIXED_PRECISION=bf16", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    start = f"accelerate launch t.py --model_name_or_path {MODEL} --lora_r 8"
    wanted = launched_job((*NODE, *sets, *start.split()), LaunchOptions(folder=None))
    head = "#SBATCH --nodes=1 --gpus-per-node=8\n"
    exported = head + "".join(f"export {entry}\n" for entry in sets) + f"srun {start}"
    later = f"{head}{' '.join(sets)}\nexport {' '.join(x.partition('=')[0] for x in sets)}\n{start}"
    kept = head + "".join(f"{entry}\n" for entry in sets) + f"srun {start}"
    assert wanted.job.expandable_segments
    assert [read_script(text).launched().job for text in (exported, later)] == [wanted.job] * 2
    assert read_script(kept).launched().job.expandable_segments is None


@pytest.mark.parametrize("word", ["$MORE", "${MORE}", "${MORE[@]}", "$@"])
def test_a_variable_that_nobody_sets_is_told(word: str) -> None:
    """It may stand for any flags."""
    text = (
        f'#SBATCH --gpus-per-node=8\nsrun python t.py --model_name_or_path {MODEL} "{word}" --bf16'
    )
    assert any("$" in entry for entry in read_script(text).launched().unread)


def test_variables_that_would_make_gigabytes_are_refused_before_they_are_put_in() -> None:
    """A long one that a line names often."""
    text = f"A={'x' * 100_000}\nsrun python t.py {'$A ' * 30_000}"
    with pytest.raises(TrimtabError, match="longer than 200,000 characters"):
        read_script(text)


@pytest.mark.slow_end
@pytest.mark.parametrize("name", KEYS)
def test_every_key_alone_has_one_estimate_by_every_word(name: str, tmp_path: Path) -> None:
    """Whatever is drawn elsewhere."""
    for key in KEYS[name]:
        for value in values_of(name, key):
            check(recipe_of(name, {key: value}), tmp_path)


@pytest.mark.slow_end
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_recipes_have_one_estimate_each(part: int, tmp_path: Path) -> None:
    """The same of a thousand others in each part."""

    @seed(part)
    @settings(max_examples=1_000, deadline=None, database=None)
    @given(recipe=recipes(), dice=st.integers(0, 1 << 30))
    def many(recipe: Recipe, dice: int) -> None:
        check(recipe, tmp_path, dice)

    many()


@pytest.mark.parametrize("name", KEYS)
def test_a_word_that_nobody_knows_leaves_its_field_unknown(name: str, tmp_path: Path) -> None:
    """It is refused by its name, or the estimate misses the field and has the widest bound."""
    spoken = dialect(name)
    for key in KEYS[name]:
        target = spoken.flags[key]
        if not target or target in FREE or "*" in spoken.words.get(key, {}):
            continue
        if key in spoken.switches:
            continue
        said = {key: UNKNOWN}
        recipe = recipe_of(name, said)
        words = Spelling(with_length(recipe), tmp_path, random.Random(0)).command("")  # noqa: S311
        node = () if name == "srun" else NODE
        refusal, missing, tier = told([*node, *words], LaunchOptions(folder=tmp_path))
        assert UNKNOWN in refusal or any(UNKNOWN in entry for entry in missing), key
        assert refusal or tier is Tier.C, key


def told(words: list[str], options: LaunchOptions) -> tuple[str, tuple[str, ...], Tier | None]:
    """The refusal of a command, else what its estimate misses and its tier."""
    try:
        launched = launched_job(words, options)
    except TrimtabError as error:
        return str(error), (), None
    estimate = predict_peak(launched.job)
    return "", estimate.missing, estimate.tier
