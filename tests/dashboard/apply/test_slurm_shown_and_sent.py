"""What is shown is what is sent: the commands of a change file are those that the applier runs.

One recorded job with other states and sizes is collected into the store's words, of which the file
is written, and looked at by the applier, in the answers of both releases.
"""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.slurm_apply import GPU_MODELS, MODEL, prepared, proposal
from beds.slurm_replay import (
    NOW,
    RECORDED,
    RELEASES,
    command_folder,
    recorded_commands,
    recorded_job,
)

from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector
from dashboard.apply.slurm.change.applier import SlurmApplier
from dashboard.apply.worker.change_file import change_for
from data.base.errors import ApplyError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job
from data.records.actions import ACTIONS, Action
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.settings.apply import SlurmApplySettings
from data.settings.sources import SlurmSettings

RAW = "4711"
ACTION_OF = {
    "fewer": Action.FEWER_GPUS, "half-the-nodes": Action.FEWER_GPUS, "more": Action.SCALE_OUT,
    "model": Action.SMALLER_GPU, "stop": Action.RECLAIM, "time-limit": Action.TIME_LIMIT,
    "later": Action.SHIFT_IN_TIME, "drain": Action.CONSOLIDATE,
}  # fmt: skip
LIKE_THESE = {Action.MIG_SLICE, Action.LARGER_GPU, Action.SPREAD}
"""Actions that differ from one of those only in why it is proposed, or in the name of a type."""


@dataclass(frozen=True)
class Shape:
    """A job of `nodes` nodes with `each` GPUs, as it stands in the queue."""

    state: str
    nodes: int
    each: int
    typed: bool
    hold: bool = False

    def __str__(self) -> str:
        """Name it in the list of tests."""
        kind = "h100" if self.typed else "any"
        return f"{self.state}{'-held' * self.hold}-{self.nodes}x{self.each}-{kind}".lower()


SHAPES = (
    Shape("PENDING", 1, 4, typed=True),
    Shape("PENDING", 2, 4, typed=False),
    Shape("PENDING", 2, 2, typed=True, hold=True),
    Shape("RUNNING", 1, 4, typed=True),
    Shape("RUNNING", 2, 2, typed=True),
)


def number(value: int, release: str) -> Any:
    """A number as a release writes it."""
    return value if release == "22.05" else {"infinite": False, "number": value, "set": True}


def commands_of(folder: Path, release: str, shape: Shape) -> Path:
    """Programs that tell of one job of that shape."""
    kind = "h100:" if shape.typed else ""
    prefix = "gres:" if release == "22.05" else "gres/"
    total, runs = shape.nodes * shape.each, shape.state == "RUNNING"
    names = ",".join(f"h100-{index + 1:02d}" for index in range(shape.nodes))
    state: Any = shape.state if release == "22.05" else [shape.state]
    job = recorded_job(release, "waiting") | {
        "job_id": int(RAW), "job_state": state, "nodes": names if runs else "",
        "node_count": number(shape.nodes, release), "max_nodes": number(shape.nodes, release),
        "tres_per_node": f"{prefix}gpu:{kind}{shape.each}", "tres_per_job": "",
        "tres_per_task": "", "tres_per_socket": "", "batch_flag": True, "requeue": True,
        "gres_detail": [f"gpu:h100:{shape.each}(IDX:0-{shape.each - 1})"] * shape.nodes * runs,
        "tres_req_str": f"cpu=1,node={shape.nodes},gres/gpu={total}",
        "tres_alloc_str": f"cpu=1,node={shape.nodes},gres/gpu={total}" * runs,
        "state_reason": "JobHeldUser" if shape.hold else ("None" if runs else "Resources"),
        "priority": number(0 if shape.hold else 100, release),
        "time_limit": number(600, release), "array_job_id": number(0, release),
        "het_job_id": number(0, release),
    }  # fmt: skip
    document = json.loads((RECORDED / release / "squeue.json").read_text()) | {"jobs": [job]}
    folder.mkdir()
    (folder / "jobs.json").write_text(json.dumps(document), encoding="utf-8")
    made = recorded_commands(folder / "bin", release)
    return command_folder(made, squeue=f"cat '{folder}/jobs.json'")


def proposed(change: str, shape: Shape) -> Recommendation:
    """A recommendation of that change."""
    has = shape.nodes * shape.each
    counts = {"fewer": has // 2 if shape.nodes == 1 else shape.nodes, "half-the-nodes": has // 2,
              "more": has * 2, "stop": 0}  # fmt: skip
    details = {
        "time-limit": (("time_limit_seconds", "1200"),),
        "later": (("begin_at", (NOW + timedelta(hours=3)).isoformat()),),
        "drain": (("node", "h100-01"),),
    }
    model = "A100-SXM4-80GB" if change == "model" else MODEL
    return proposal(
        RAW,
        has,
        counts.get(change, has),
        action=ACTION_OF[change],
        details=details.get(change, ()),
        created_at=NOW,
        proposed=Configuration(gpu_model=model, gpu_count=counts.get(change, has)),
    )


def shown(one: Recommendation, job: Job) -> list[list[str]] | None:
    """The words of each command of the file that changes something, None where it is refused."""
    try:
        text = change_for(one, (), job).text
    except ApplyError:
        return None
    changing = ("update", "requeuehold", "release", "uhold", "hold")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return [
        words
        for words in map(shlex.split, lines)
        if words[:1] == ["scancel"] or (words[:1] == ["scontrol"] and words[1] in changing)
    ]


def sent(applier: SlurmApplier, one: Recommendation) -> list[list[str]] | None:
    """The words of each command that the applier would run, None where it refuses the change."""
    try:
        steps = prepared(applier, one).steps
    except ApplyError:
        return None
    payloads = (json.loads(step.payload) for step in steps)
    return [payload["argv"] for payload in payloads if "argv" in payload]


def compared(folder: Path, release: str, shape: Shape) -> Iterator[tuple[str, Any, Any]]:
    """Yield (change, commands shown, commands sent)."""
    programs = commands_of(folder, release, shape)
    source = SlurmSettings(mode="commands", bin_directory=str(programs), gpu_models=GPU_MODELS)
    window = Window(start=NOW - timedelta(hours=1), end=NOW)
    jobs = slurm_collector(source, load_gpu_catalogue()).collect(window).jobs
    job = next(job for job in jobs if job.job_id == f"slurm:{RAW}")
    settings = SlurmApplySettings(enabled=True, allow_requeue=True)
    applier = SlurmApplier(settings, source=source, clock=lambda: NOW)
    for change in ACTION_OF:
        one = proposed(change, shape)
        yield change, shown(one, job), sent(applier, one)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_file_has_the_commands_that_the_applier_runs(
    tmp_path: Path, release: str, shape: Shape
) -> None:
    """Word by word; a file that is refused is refused by the applier as well."""
    made = 0
    for change, file, applier in compared(tmp_path / "slurm", release, shape):
        if applier is not None:
            assert file == applier, change
            made += 1
    assert made >= 4


def test_every_action_that_is_made_in_slurm_is_compared_here() -> None:
    """But for a cut, whose file is for a person who waits between its steps."""
    made = {action for action, spec in ACTIONS.items() if "slurm" in spec.appliers}
    assert made == {*ACTION_OF.values()} | LIKE_THESE
