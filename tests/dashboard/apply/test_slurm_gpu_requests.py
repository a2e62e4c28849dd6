"""How a job asks for GPUs: one reading for what is planned and for what is applied."""

from datetime import UTC, datetime
from itertools import product

import pytest
from beds.slurm import SlurmBed
from beds.slurm_apply import applier_of, full, prepared, proposal, run_steps, shown, waiting

from collectors.slurm.records import gpu_requests, read_queue_job
from dashboard.apply.slurm.client.gres_text import canonical_gres
from dashboard.apply.slurm.client.job_state import read_job
from data.records.changes import StepOutcome

AT = datetime(2026, 5, 4, 8, tzinfo=UTC)
GPUS = {
    "node": ("gres:gpu:h100:4", "gres/gpu:h100:4"),
    "job": ("gres:gpu:4", "gres/gpu:4"),
    "task": ("gres:gpu:1", "gres/gpu=1"),
    "socket": ("gres:gpu:2", "gres/gpu:2"),
}
NO_GPUS = ("", "cpu=8", "cpu:8", "cpu=2,license/matlab=1", "gres/lustre=1", "license=gpu_tools:2")


def record(**fields: object) -> dict[str, object]:
    """A job that waits, as `squeue --json` gives it."""
    return {
        "job_id": 7,
        "job_state": ["PENDING"],
        "name": "train",
        "user_name": "u",
        "nodes": "",
        "node_count": 1,
        "tres_req_str": "cpu=8,node=1",
        "submit_time": int(AT.timestamp()),
    } | fields


@pytest.mark.parametrize("other", NO_GPUS)
@pytest.mark.parametrize("release", [0, 1])
@pytest.mark.parametrize("per", sorted(GPUS))
def test_what_asks_for_no_gpu_is_no_second_request(per: str, release: int, other: str) -> None:
    """From 23.02 on CPUs of a task stand in the field that held GPUs alone."""
    request = GPUS[per][release]
    for beside in GPUS:
        text = f"{other},{request}".strip(",") if beside == per else request
        fields = {f"tres_per_{beside}": other} | {f"tres_per_{per}": text}
        found = record(**fields)
        assert [way for way, _text in gpu_requests(found)] == [per]
        planned = dict(read_queue_job(found, release=(24, 11)).extra)
        applied = read_job(found, [], AT).gpus_by
        assert applied == ((per, canonical_gres(planned["gres"])),)
        assert planned["gres_per"] == per
        assert bool(planned.get("fixed_size")) == (per == "socket")


@pytest.mark.parametrize(
    ("one", "other"), [pair for pair in product(GPUS, GPUS) if pair[0] < pair[1]]
)
def test_two_requests_are_two_for_plan_and_applier_alike(one: str, other: str) -> None:
    """The planner does not offer what the applier refuses."""
    found = record(**{f"tres_per_{per}": GPUS[per][1] for per in (one, other)})
    assert "fixed_size" in dict(read_queue_job(found, release=(24, 11)).extra)
    assert len(read_job(found, [], AT).gpus_by) == 2


@pytest.mark.slurm
@pytest.mark.parametrize(
    "options",
    [
        ("-c", "8"),
        ("--cpus-per-task=4", "--ntasks=2"),
        ("--ntasks-per-node=2", "-c", "2"),
        ("--mem=2000",),
    ],
)
def test_cpus_of_a_task_keep_no_job_from_another_number_of_gpus(
    bed: SlurmBed, options: tuple[str, ...]
) -> None:
    """On this release its GPUs change, and its CPUs and everything else stay as they were."""
    full(bed)
    job = waiting(bed, "-N1", "--gres=gpu:h100:4", *options)
    applier = applier_of(bed)
    before = shown(bed, job)
    change = prepared(applier, proposal(job, 4, 2))
    assert {result.outcome for result in run_steps(applier, change)} == {StepOutcome.DONE}
    after = shown(bed, job)
    assert "gpu:h100:2" in after
    for field in ("NumCPUs=", "CPUs/Task=", "NumTasks=", "MinMemoryNode=", "MinMemoryCPU="):
        assert _value(before, field) == _value(after, field)


def _value(text: str, field: str) -> str:
    return text.partition(field)[2].partition(" ")[0].partition("\n")[0]
