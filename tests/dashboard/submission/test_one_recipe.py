"""One recipe, one estimate: a blank, an equals sign, YAML, JSON, TOML and the environment."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from drawn import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dashboard.submission.launchers.command_line import LINE
from dashboard.submission.launchers.fields import FIELDS, dialect
from dashboard.submission.launchers.launched_job import LaunchOptions, launched_job
from data.base.errors import TrimtabError
from planner.memory.estimate.bounds import Tier
from planner.memory.estimate.predictor import predict_peak

MODEL = "llama3-8b"
STARTS = {
    "transformers": f"torchrun t.py --model_name_or_path {MODEL}",
    "trl": f"trl sft --model_name_or_path {MODEL}",
    "axolotl": f"axolotl train --base_model {MODEL}",
    "llamafactory": f"llamafactory-cli train --model_name_or_path {MODEL}",
    "swift": f"swift sft --model {MODEL}",
    "megatron": f"torchrun pretrain_gpt.py --model {MODEL}",
    "megatron_swift": f"megatron sft --model {MODEL}",
    "torchtitan": "torchtitan --model.name llama3 --model.flavor 8B",
    "verl": f"python -m verl.trainer.main_ppo actor_rollout_ref.model.path={MODEL}",
    "nemo": f"python megatron_gpt_finetuning.py model.restore_from_path={MODEL}",
    "vllm": f"vllm serve --model {MODEL}",
    "sglang": f"sglang.launch_server --model_path {MODEL}",
    "tgi": f"text-generation-launcher --model-id {MODEL}",
}
"""The beginning of a command in each dialect."""
FILES = {"config_file", "accelerate_file", "fsdp_file", "deepspeed_file", "model_config", "model",
         "titan_name", "titan_flavor"}  # fmt: skip
WORDS = {
    "flag": ("true", "false", "True", "yes", "off", "0", "1"),
    "whole": ("1", "2", "4"),
    "number": ("0.25", "0.5"),
    "words": ("q_proj,v_proj", "all-linear"),
}
UNKNOWN = "fnord"
KEYS = {
    name: sorted(
        key
        for key, target in dialect(name).flags.items()
        if target not in FILES | ({"stage"} if " sft" in start else set())
    )
    for name, start in STARTS.items()
}
"""All keys but the names of models and files, and a stage that the command's name says already."""
FREE = {"reward_model", "saved", "optimizer_arguments", "targets", "optimizer_layerwise"}
"""Fields that take any word: names of models and layers, and what only their own reader parses."""


def values_of(name: str, key: str) -> tuple[str, ...]:
    """The words of the table, those of the kind of field, and one that nobody knows."""
    spoken = dialect(name)
    own = (word for word in spoken.words.get(key, {}) if word not in ("to", "*"))
    target = spoken.flags[key]
    kind = WORDS.get(FIELDS[target].name, ()) if target else ()
    return (*own, *kind, *([] if key in spoken.switches else [UNKNOWN]))


@st.composite
def recipes(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """A dialect, and up to three of its keys with a value each."""
    name = draw(st.sampled_from(sorted(STARTS)))
    keys = draw(st.lists(st.sampled_from(KEYS[name]), min_size=1, max_size=3, unique=True))
    assume(not any(key.startswith(f"{other}.") for key in keys for other in keys))
    return name, {key: draw(st.sampled_from(values_of(name, key))) for key in keys}


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """The keys of a file with a table for each dot."""
    tables: dict[str, Any] = {}
    for key, value in values.items():
        *above, last = key.split(".")
        table = tables
        for part in above:
            table = table.setdefault(part, {})
        table[last] = value
    return tables


def spellings(name: str, values: dict[str, str], folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A command for each way to say the same."""
    spoken, start = dialect(name), shlex.split(STARTS[name])
    switched = [key for key, value in values.items() if key in spoken.switches]
    pairs = list(values.items())
    yield "=", [*start, *(f"--{key}={value}" for key, value in pairs)]
    yield "dashes", [*start, *(f"--{key.replace('_', '-')}={value}" for key, value in pairs)]
    yield "blank", [*start, *(word for key, value in pairs for word in (f"--{key}", value))]
    if not switched:
        yield "override", [*start, *(f"{key}={value}" for key, value in pairs)]
    typed = {key: yaml.safe_load(value) for key, value in pairs}
    for suffix, text in (
        ("yaml", yaml.safe_dump(nested(typed))),
        ("json", json.dumps(nested(typed))),
        ("words.json", json.dumps(nested(values))),
    ):
        path = folder / f"recipe.{suffix}"
        path.write_text(text, encoding="utf-8")
        yield suffix, [*start, str(path)]
    if spoken.environment:
        yield "environment", [*(f"{key.upper()}={value}" for key, value in pairs), *start]


def asked(folder: Path) -> LaunchOptions:
    """The options beside the words: eight GPUs and a config.json, which an engine reads."""
    sizes = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8}
    sizes |= {"intermediate_size": 1024, "vocab_size": 1000, "max_position_embeddings": 8192}
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "llama", **sizes}), encoding="utf-8")
    return LaunchOptions(config=str(path), gpus=8)


def answer(words: list[str], options: LaunchOptions) -> tuple[object, ...]:
    """The job with the engine's share and what was not read, or that it is refused."""
    try:
        launched = launched_job(words, options)
    except TrimtabError:
        return ("refused",)
    unread = sorted(
        re.sub(rf"{LINE}|recipe\.\S+(?=:)", "there", text).replace("-", "_").lower()
        for text in launched.unread
    )
    return launched.job, launched.engine_share, unread


def check(drawn: tuple[str, dict[str, str]], folder: Path) -> None:
    """Fail unless all spellings of a recipe have one answer."""
    options = asked(folder)
    answers = {how: answer(words, options) for how, words in spellings(*drawn, folder)}
    assert len({repr(found) for found in answers.values()}) == 1, (drawn, answers)


@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(drawn=recipes())
def test_every_spelling_of_a_recipe_has_one_estimate(
    drawn: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    """Whichever keys of a dialect are said, and however."""
    check(drawn, tmp_path)


def test_two_words_that_nobody_knows_do_not_hang_on_their_order(tmp_path: Path) -> None:
    """Two keys of one field with one unknown word, in a file that sorts them."""
    check(("llamafactory", {"torch_dtype": UNKNOWN, "dtype": UNKNOWN}), tmp_path)


def test_nothing_is_a_word_where_a_table_has_it(tmp_path: Path) -> None:
    """A null of YAML is the null of a command, which here means no recomputation."""
    key = "activations_checkpoint_granularity"
    words = {f"model.{key}": "selective", "model.config.recompute_granularity": "null"}
    check(("nemo", words), tmp_path)


@pytest.mark.slow
@pytest.mark.slow_end
def test_ten_thousand_recipes_have_one_estimate_each(tmp_path: Path) -> None:
    """The same of many more, and of every key with every word alone."""
    for name, keys in KEYS.items():
        for key in keys:
            for value in values_of(name, key):
                check((name, {key: value}), tmp_path)

    @settings(max_examples=10_000, deadline=None, database=None)
    @given(drawn=recipes())
    def many(drawn: tuple[str, dict[str, str]]) -> None:
        check(drawn, tmp_path)

    many()


@pytest.mark.parametrize("name", STARTS)
def test_a_word_that_nobody_knows_leaves_its_field_unknown(name: str, tmp_path: Path) -> None:
    """It is refused by its name, or the estimate misses the field and has the widest bound."""
    spoken = dialect(name)
    for key in KEYS[name]:
        target = spoken.flags[key]
        if not target or target in FREE or "*" in spoken.words.get(key, {}):
            continue
        if key in spoken.switches:
            continue
        words = [*shlex.split(STARTS[name]), f"--{key}={UNKNOWN}"]
        refusal, missing, tier = told(words, asked(tmp_path))
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
