"""What is submitted is what was planned: every offered plan can be told to the command."""

from dataclasses import replace
from typing import Any

import pytest
from drawn import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from outsiders.submission.reading import run_of
from submission_cases import A100, make_fleet, make_job, node

from dashboard.submission.job.command_options import COUNT_OPTIONS
from dashboard.submission.job.feasible_plans import missing_options, plans_for
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.launch import Reference, launch_words
from dashboard.submission.job.placement import Arrival, HostNeed, place
from data.base.errors import ChangeRefusedError, ImpossibleProblemError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from planner.memory.estimate.training_plans import TrainingPlan
from planner.memory.step.framework_traits import known_frameworks

FLEET = make_fleet(node("a1", A100), node("a2", A100), node("h1", gpus=8, free=8))


def planned(job: JobFile, plan: TrainingPlan) -> dict[str, Any]:
    """The same of a plan."""
    spread = plan.job.parallelism
    return {
        "global_batch": job.global_batch,
        "spread": (spread.data, spread.tensor, spread.pipeline),
        "sharding": str(spread.sharding),
        "recompute": str(plan.job.recompute),
        "micro_batch": plan.job.micro_batch,
    }


@st.composite
def asked(draw: st.DrawFn) -> JobFile:
    """A job of any framework whose command names any part of what a plan may ask for."""
    named = draw(st.lists(st.sampled_from(COUNT_OPTIONS), unique=True, max_size=len(COUNT_OPTIONS)))
    training: dict[str, Any] = {
        "global_batch": draw(st.sampled_from([1, 2, 6, 8, 24, 32, 64, 96])),
        "sequence_length": draw(st.sampled_from([512, 2048])),
        "framework": draw(st.sampled_from(["", *known_frameworks()])),
    }
    if draw(st.booleans()):
        whole = [size for size in (1, 2, 4) if training["global_batch"] % size == 0]
        training["micro_batch"] = draw(st.sampled_from(whole))
    if draw(st.booleans()):
        training["recompute"] = draw(st.sampled_from(["none", "operators", "full"]))
    return make_job(
        command=["train.py", *(f"--{name}={{{name}}}" for name in named)],
        reads=[],
        launcher=draw(st.sampled_from(["torchrun", "none"])),
        model={"name": draw(st.sampled_from(["tinyllama-1.1b", "llama3.2-3b"]))},
        training=training,
    )


@settings(deadline=None, max_examples=examples(60))
@given(job=asked())
def test_what_runs_is_what_was_planned(job: JobFile) -> None:
    """Global batch, parallel sizes, sharding and recomputation of every plan reach the program."""
    types = FLEET.gpu_types(load_gpu_catalogue())
    try:
        plans = plans_for(job, types, max_gpus=8)
    except ImpossibleProblemError:
        assume(False)  # what is refused is not submitted
    stated = {
        name: value
        for name, value in (("micro_batch", job.micro_batch), ("recompute", job.recompute))
        if value
    }
    for plan in plans:
        placement = place((plan,), FLEET, Arrival(host=HostNeed(), late=lambda _plan: False))
        words = [
            word for word in launch_words(job, placement, rank=None)
            if not isinstance(word, Reference)
        ]  # fmt: skip
        assert run_of(words, job.framework, stated) == planned(job, plan), words


@pytest.mark.parametrize(
    ("command", "training", "hint"),
    [
        (["train.py"], {}, "{micro_batch}"),
        (["train.py", "--mb={micro_batch}"], {"global_batch": 4096}, "{gradient_accumulation}"),
        (["train.py", "--mb={micro_batch}"], {"framework": "torchtitan"}, "or {global_batch}"),
    ],
)
def test_what_the_command_lacks_is_named(
    command: list[str], training: dict[str, Any], hint: str
) -> None:
    """A job none of whose plans can be told is refused with the names that are missing."""
    job = make_job(
        command=command,
        reads=[],
        training={"global_batch": 64, "sequence_length": 2048} | training,
    )
    with pytest.raises(ImpossibleProblemError) as refused:
        plans_for(job, FLEET.gpu_types(load_gpu_catalogue()), max_gpus=8)
    assert hint in str(refused.value.hint)


def test_what_a_program_reads_from_its_environment_counts_as_told() -> None:
    """A job file may say which TRIMTAB_ variables its program takes."""
    job = make_job(command=["train.py"], reads=["micro_batch", "gradient_accumulation"])
    plans = plans_for(job, FLEET.gpu_types(load_gpu_catalogue()), max_gpus=8)
    assert {plan.job.parallelism.tensor for plan in plans} == {1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"command": ["train.py", "{micro_bach}"]}, "Did you mean {micro_batch}"),
        ({"command": ["train.py", "{data_path}"]}, "no data.path"),
        ({"command": ["accelerate", "launch", "t.py"]}, "once per GPU"),
        ({"command": ["/opt/bin/deepspeed", "t.py"]}, "once per GPU"),
        ({"command": ["python3", "-m", "torch.distributed.run", "t.py"]}, "once per GPU"),
        (
            {"training": {"global_batch": 1, "sequence_length": 8, "micro_batch": 2}},
            "a divisor of global_batch",
        ),
        ({"command": ["--nproc-per-node=7", "train.py"]}, "an option of its own"),
        ({"reads": ["batch"]}, "reads of the job file is 'batch'"),
    ],
)
def test_a_command_that_would_run_otherwise_is_refused(changes: dict[str, Any], said: str) -> None:
    """Misspelt names, a path that is not stated, and a launcher inside torchrun are named."""
    with pytest.raises(ChangeRefusedError) as refused:
        make_job(**changes)
    assert said in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize("word", ["{epoch}.pt", '{"lr": 1}', "${HOME}", "{}", "${micro_batch}"])
def test_braces_of_other_programs_stay(word: str) -> None:
    """Only one of our names in braces of its own is replaced."""
    job = make_job(command=["train.py", word])
    (plan, *_rest) = plans_for(job, FLEET.gpu_types(load_gpu_catalogue()), max_gpus=1)
    placement = place((plan,), FLEET, Arrival(host=HostNeed(), late=lambda _plan: False))
    assert launch_words(job, placement, rank=None)[-1] == word


@settings(deadline=None, max_examples=examples(30))
@given(job=asked())
def test_a_knob_that_would_help_is_named(job: JobFile) -> None:
    """What is named is enough: with it in the command as many GPUs as said hold the job."""
    types = FLEET.gpu_types(load_gpu_catalogue())
    try:
        plans = plans_for(job, types, max_gpus=8)
    except ImpossibleProblemError:
        assume(False)  # the refusal names what is missing
    chosen = max(plans, key=lambda plan: plan.gpus)
    text = missing_options(job, chosen, types, max_gpus=8)
    if not text:
        return
    knobs = [word for word in COUNT_OPTIONS if f"{{{word}}}" in text]
    told = replace(job, command=(*job.command, *(f"{{{word}}}" for word in knobs)))
    gpus = int(text.partition("in reads, and ")[2].partition(" x ")[0])
    with_it = plans_for(told, types, max_gpus=8)
    assert any(plan.fits and plan.gpus == gpus for plan in with_it)
    assert not chosen.fits or gpus < chosen.gpus


def test_one_word_that_fits_an_8b_model_on_one_gpu_is_named() -> None:
    """Adapters of 8B on one H100: 58 % without {recompute}, 96 % with it."""
    training = {"global_batch": 8, "sequence_length": 8192, "framework": "transformers",
                "method": "adapter", "adapter_rank": 16, "precision": "bf16-true",
                "optimizer": "adamw", "micro_batch": 1}  # fmt: skip
    job = make_job(
        command=["train.py", "{gradient_accumulation}"],
        reads=[],
        model={"name": "llama3-8b"},
        training=training,
    )
    fleet = make_fleet(node("h1", gpus=1, free=1))
    types = fleet.gpu_types(load_gpu_catalogue())
    (chosen,) = plans_for(job, types, max_gpus=1)
    assert not chosen.fits
    text = missing_options(job, chosen, types, max_gpus=1)
    assert text.startswith("name {recompute} in the command, or in reads, and 1 x H100")
    assert text.endswith(" 96 %")
