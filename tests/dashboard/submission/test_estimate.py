"""`trimtab estimate`: plans with their breakdown, and every bad input named."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dashboard.cli import main
from dashboard.submission.estimates.estimate import chosen_types
from dashboard.submission.job.fleet import catalogue_types
from data.base.errors import ImpossibleProblemError
from data.catalogue.gpu_catalogue import load_gpu_catalogue

CONFIG = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 128_256,
    "tie_word_embeddings": True,
}


def config(tmp_path: Path, **changes: Any) -> str:
    """A config.json; None takes a key out."""
    values = {name: value for name, value in (CONFIG | changes).items() if value is not None}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    return str(path)


def answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str, *options: str
) -> tuple[int, str, str]:
    """Exit code and both streams of `trimtab estimate` without a store."""
    code = main([
        "--store", f"duckdb:///{tmp_path}/none.duckdb", "estimate", model, "--batch", "64",
        "--seq", "4096", *(() if "--gpus" in options else ("--gpus", "4")), *options,
    ])  # fmt: skip
    said = capsys.readouterr()
    return code, said.out, said.err


def test_plans_come_ranked_with_their_breakdown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """JSON holds the plans, each with p50, p99, parts at the binding event, tier, and gaps."""
    code, out, _err = answer(
        capsys, tmp_path, config(tmp_path), "--format", "json", "--gpu", "h100-sxm", "--gpu", "a30"
    )
    document = json.loads(out)
    assert code == 0
    assert document["model"].endswith("1,235,814,400 parameters")
    plans = document["plans"]
    assert {plan["gpu"].partition("-")[0] for plan in plans} <= {"H100", "A30"}
    for entry in plans:
        estimate = entry["estimate"]
        assert estimate["p50_bytes"] <= estimate["p99_bytes"]
        assert sum(estimate["breakdown"].values()) == pytest.approx(estimate["allocated_bytes"])
        assert "framework" in estimate["missing"]
        assert estimate["tier"] == "C"
    order = [-plan["speed_per_gpu"] for plan in plans]
    assert order == sorted(order)


def test_a_recipe_that_is_stated_is_tier_a(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Framework, optimiser, precision and lengths stated leave nothing missing."""
    _code, out, err = answer(
        capsys, tmp_path, "llama3-8b", "--framework", "torchtitan", "--optimizer", "adamw",
        "--precision", "amp", "--lengths", "fixed", "--top", "1", "--gpu", "B200",
    )  # fmt: skip
    assert "tier A" in err
    assert "missing" not in err
    assert "weights" in out


@pytest.mark.parametrize("wanted", ["", "mi300x", "h100-nvl"])
def test_boards_of_another_vendor_are_shown_where_they_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, wanted: str
) -> None:
    """Most programs are for CUDA, and the cheapest board is not."""
    asked = ("--gpu", wanted) if wanted else ()
    _code, out, _err = answer(
        capsys, tmp_path, "llama3.2-1b", "--format", "json", "--top", "99", *asked
    )
    shown = {plan["gpu"] for plan in json.loads(out)["plans"]}
    assert shown
    assert {name.startswith("MI3") for name in shown} == {wanted == "mi300x"}


def test_the_table_is_data_and_the_rest_is_said_beside_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """CSV on stdout has a header and a line per plan, nothing else."""
    _code, out, _err = answer(
        capsys, tmp_path, "llama3.2-1b", "--format", "csv", "--top", "3", "--gpu", "L4"
    )
    lines = out.strip().splitlines()
    assert lines[0].startswith("gpu,gpus,data,tensor,pipeline")
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"hidden_size": None, "vocab_size": None}, (), "lacks hidden_size, vocab_size"),
        ({"hidden_size": -2048}, (), "hidden = -2048"),
        ({"num_hidden_layers": 1e40}, (), "num_hidden_layers is 1e+40"),
        ({"vocab_size": "many"}, (), "vocab_size is 'many'"),
        ({}, ("--tensor", "3"), "32 heads over 3 tensor-parallel GPUs"),
        ({}, ("--pipeline", "17"), "16 layers over 17 pipeline stages"),
        ({}, ("--data", "3"), "a batch of 64 over 3 data-parallel ranks"),
        ({}, ("--tensor", "0"), "tensor parallelism of 0"),
        ({}, ("--gpu", "quantum"), "no GPU type on offer is called 'quantum'"),
        ({}, ("--gpu", "H30"), "no GPU type on offer is called 'H30'"),
        ({}, ("--optimizer", "magic"), "'magic' is none of the known optimizers"),
        ({}, ("--framework", "tortitan"), "'tortitan' is none of the known frameworks"),
        ({}, ("--framework", "tortitan"), "Did you mean torchtitan?"),
        ({}, ("--micro-batch", "-1"), "micro_batch of -1"),
        ({}, ("--seq", "0"), "--seq of 0"),
        ({}, ("--micro-batch", "3"), "a batch of 64 with a micro-batch of 3"),
        (
            {}, ("--micro-batch", "64", "--recompute", "none", "--gpu", "H100-SXM5-80GB"),
            "not even 1,048,576",
        ),
        (
            {"hidden_size": 1 << 20, "num_attention_heads": 8192, "num_hidden_layers": 100,
             "num_key_value_heads": 8192, "intermediate_size": 1 << 22},
            ("--gpu", "H200"),
            "not even 1,048,576",
        ),
        (
            {"hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128,
             "intermediate_size": 53248},
            ("--gpus", "8", "--gpu", "H100-SXM5-80GB"),
            "the smallest cluster that would: 256 x H100-SXM5-80GB",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    changes: dict[str, Any],
    options: tuple[str, ...],
    said: str,
) -> None:
    """Missing keys, impossible sizes and spreads, and what fits nowhere: one line, exit code 1."""
    code, out, err = answer(capsys, tmp_path, config(tmp_path, **changes), *options)
    assert (code, out) == (1, "")
    assert said in err


def test_an_unknown_architecture_is_read_as_llama_and_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The note names the model type and what is assumed for what is missing."""
    model = config(tmp_path, model_type="hyena", intermediate_size=None)
    code, _out, err = answer(capsys, tmp_path, model, "--top", "1", "--gpu", "A30")
    assert code == 0
    assert "model_type hyena is not known: read as a Llama-like decoder" in err
    assert "intermediate_size = 8192" in err


def test_a_layout_that_does_not_fit_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A fixed spread is judged on every GPU type instead of being searched for."""
    _code, out, _err = answer(
        capsys, tmp_path, "llama3-8b", "--tensor", "2", "--gpu", "T4", "--format", "json"
    )
    (plan,) = json.loads(out)["plans"]
    assert plan["fits"] is False
    assert "the GPU has 15 GiB" in plan["why_not"]


@pytest.mark.parametrize("model", ["llama3-8b", "llama3.2-1b", "tinyllama-1.1b"])
@pytest.mark.parametrize("framework", ["", "torchtitan", "transformers"])
@pytest.mark.parametrize("gpus", ["2", "4"])
def test_what_is_listed_fits_with_the_stated_probability(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str, framework: str, gpus: str
) -> None:
    """Every plan reaches 95 %; what does not is counted, and without any the closest is named."""
    code, out, err = answer(
        capsys, tmp_path, model, "--framework", framework, "--format", "json", "--top", "200",
        "--gpu", "H100", "--gpu", "A30", "--gpus", gpus,
    )  # fmt: skip
    if code == 1:
        assert out == ""
        closest = re.search(r"the closest: \d+ x .* fits with a probability of ([\d.]+) %", err)
        assert ("no plan fits with a probability of 95 %" in err) is bool(closest)
        assert closest or framework != "torchtitan"  # elsewhere the tensors alone have no room
        assert closest is None or float(closest[1]) < 95
        assert "smallest cluster that would" in err
        return
    document = json.loads(out)
    assert document["warnings"] == []
    for plan in document["plans"]:
        assert plan["fit_probability"] >= 0.95
        assert plan["p50_gib"] <= plan["p95_gib"] <= plan["usable_gib"] < plan["memory_gib"]
        assert plan["fleet"] == "fleet unknown"
    for note in document["notes"]:
        assert "ways to train it were left out" in note


@pytest.mark.parametrize("degree", ["--data", "--tensor", "--pipeline"])
def test_a_layout_is_judged_by_the_same_probability(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, degree: str
) -> None:
    """A fixed spread fits where it would be listed, and says its probability where it does not."""
    fits = set()
    for batch in ("1", "4", "16"):
        _code, out, _err = answer(
            capsys, tmp_path, "llama3-8b", degree, "4", "--micro-batch", batch, "--format", "json"
        )
        for plan in json.loads(out)["plans"]:
            fits.add(plan["fits"])
            assert plan["fits"] is (plan["fit_probability"] >= 0.95)
            if "may run out of memory" in plan["why_not"]:
                shown = 100 * plan["fit_probability"]
                assert f"fits with a probability of {shown:.1f} %, below 95 %" in plan["why_not"]
    assert fits == {True, False}


@pytest.mark.parametrize(
    ("hours", "said"), [("0.01", "ends the run"), ("8000", ""), ("0", "--time-limit of 0.0")]
)
def test_a_limit_that_ends_the_run_is_warned_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, hours: str, said: str
) -> None:
    """A limit below the estimated hours gets the limit that would do; the hours are columns."""
    code, out, err = answer(
        capsys, tmp_path, "llama3.2-1b", "--tokens", "1e9", "--time-limit", hours, "--gpu",
        "H100", "--format", "csv",
    )  # fmt: skip
    if hours == "8000":
        high = float(next(csv.DictReader(out.splitlines()))["hours_high"])
        code, _out, err = answer(
            capsys, tmp_path, "llama3.2-1b", "--tokens", "1e9", "--time-limit", f"{high * 0.99}",
            "--gpu", "H100",
        )  # fmt: skip
        said = "may end the run before it is done"
    assert said in err
    assert code == (1 if hours == "0" else 0)


def test_the_name_of_a_board_means_no_other_board() -> None:
    """A10 is no A100, L40 no L40S and H20 no H200; h100 means every H100."""
    types = catalogue_types(load_gpu_catalogue())
    boards = {gpu_type.name.partition("-")[0] for gpu_type in types}
    for board in boards:
        found = {gpu_type.name for gpu_type in chosen_types(types, [board.lower()])}
        assert {name.partition("-")[0] for name in found} == {board}
    with pytest.raises(ImpossibleProblemError, match="'A1'"):
        chosen_types(types, ["A1"])
