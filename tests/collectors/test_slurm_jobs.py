"""From Slurm's answers to records: models, MIG, shares, uneven totals, forgotten jobs."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from collectors.shared.collector import Window
from collectors.slurm.accounting import ACCOUNTING_FIELDS, read_accounting_row
from collectors.slurm.backend import SlurmAnswers
from collectors.slurm.jobs import SlurmCollector
from collectors.slurm.records import read_node, read_queue_job
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import JobState, JobWait
from data.records.feasible_changes import required_nodes

CONFIG = Path(__file__).parents[1] / "recorded" / "mig_manager" / "configmap.yaml"

END = datetime(2026, 1, 5, 12, tzinfo=UTC)
WINDOW = Window(start=END - timedelta(hours=1), end=END)
BOARDS = {"name": "n1", "state": "idle", "gres": "gpu:h100:8", "partitions": ["big"]}
MIG = {
    "name": "m1",
    "state": "idle",
    "gres": "gpu:h100_1g.10gb:7,gpu:h100:1",
    "partitions": ["mig"],
}
RUNNING = {
    "job_id": 7,
    "job_state": "RUNNING",
    "name": "train",
    "user_name": "u",
    "partition": "big",
    "nodes": "n1",
    "gres_detail": ["gpu:h100:2(IDX:3,5)"],
    "start_time": int(END.timestamp()) - 600,
}
FINISHED = dict.fromkeys(ACCOUNTING_FIELDS, "") | {
    "JobIDRaw": "5",
    "JobID": "5",
    "State": "COMPLETED",
    "Submit": "2026-01-05T11:00:00",
    "Start": "2026-01-05T11:30:00",
    "End": "2026-01-05T11:50:00",
    "NodeList": "n[1-2]",
    "AllocTRES": "gres/gpu=4",
    "Partition": "big",
}


@dataclass(frozen=True, slots=True)
class Saying:
    """A way of asking that has these answers."""

    said: SlurmAnswers
    name: str = "slurm"

    def answers(self, _window: Window) -> SlurmAnswers:
        """The answers."""
        return self.said


def told(
    *queue: dict[str, Any],
    past: tuple[dict[str, str], ...] | None = (),
    nodes: tuple[dict[str, Any], ...] = (BOARDS, MIG),
    models: dict[str, str] | None = None,
) -> Collected:
    """What the collector makes of these records."""
    said = SlurmAnswers(
        queue=tuple(read_queue_job(entry) for entry in queue),
        nodes=tuple(read_node(node) for node in nodes),
        past=None if past is None else tuple(read_accounting_row(entry) for entry in past),
        warnings=(),
        dropped=Counter(),
    )
    collector = SlurmCollector(Saying(said), models or {}, load_gpu_catalogue())
    return collector.collect(WINDOW)


def rows_of(collected: Collected) -> list[tuple[str, str, float]]:
    """Node, index and count of every allocation."""
    frame = collected.allocations
    return [(row.node, row.gpu_index, row.gpu_count) for row in frame.itertuples()]


def test_a_running_job_holds_the_gpus_that_slurm_names() -> None:
    """One row for each index, open, confirmed at the window's end."""
    collected = told(RUNNING)
    assert rows_of(collected) == [("n1", "3", 1.0), ("n1", "5", 1.0)]
    assert collected.allocations["ended_at"].isna().all()
    assert (collected.allocations["seen_at"] == pd.Timestamp(END)).all()
    assert collected.allocations["started_at"].iloc[0] == pd.Timestamp(END - timedelta(minutes=10))
    (job,) = collected.jobs
    assert (job.first_seen_at, job.last_seen_at) == (END - timedelta(minutes=10), END)


@pytest.mark.parametrize(
    ("named", "asked", "only"),
    [
        ("n[1-2],m1", 1, {"n1", "n2", "m1"}),
        ("n1", 1, {"n1"}),
        ("n1", 2, set()),
        ("(null)", 1, set()),
    ],
)
def test_the_nodes_that_a_job_requires_are_told_by_name(
    named: str, asked: int, only: set[str]
) -> None:
    """One that asks for more nodes than it names may take others beside them."""
    (job,) = told(RUNNING | {"required_nodes": named, "node_count": asked}).jobs
    assert required_nodes(job) == only


def test_without_detail_only_the_count_is_known() -> None:
    """Slurm that counts GPUs without device files names none."""
    collected = told(RUNNING | {"gres_detail": ["gpu:h100:2(CNT:2)"]})
    assert rows_of(collected) == [("n1", "", 2.0)]
    collected = told(RUNNING | {"gres_detail": [], "tres_alloc_str": "gres/gpu=2"})
    assert rows_of(collected) == [("n1", "", 2.0)]


def test_a_total_is_spread_only_when_it_divides() -> None:
    """Three GPUs on two nodes: which node had two is not known."""
    assert rows_of(told(past=(FINISHED,))) == [("n1", "", 2.0), ("n2", "", 2.0)]
    uneven = FINISHED | {"AllocTRES": "gres/gpu=3"}
    assert rows_of(told(past=(uneven,))) == [("", "", 3.0)]


def test_a_mig_instance_is_no_board() -> None:
    """Its index and count are of instances, so none is given; profile and memory are known."""
    job = RUNNING | {
        "nodes": "m1",
        "partition": "mig",
        "gres_detail": ["gpu:h100_1g.10gb:2(IDX:3,5)"],
    }
    collected = told(job, models={"h100": "H100-SXM5-80GB"})
    (found,) = collected.jobs
    assert (found.gpu_model, found.mig_profile, found.gpu_count) == ("H100-SXM5-80GB", "1g.10gb", 2)
    assert found.gpu_memory_mib is not None
    assert found.gpu_memory_mib < 12_000
    ((name, index, count),) = rows_of(collected)
    assert (name, index) == ("m1", "")
    assert count != count  # instances are no boards: how many boards it holds is not known
    node = next(entry for entry in collected.nodes if entry.name == "m1")
    assert (node.gpu_count, node.mig_instances) == (1, (("1g.10gb", 7),))


def test_an_untyped_request_is_the_only_type_around_or_unknown() -> None:
    """What was concluded is marked as assumed; among several types nothing is concluded."""
    waiting = {"job_id": 8, "job_state": "PENDING", "tres_per_job": "gres:gpu:2"}
    collected = told(waiting | {"partition": "big"}, waiting | {"job_id": 9, "partition": "mig"})
    sure, unsure = collected.jobs
    assert (sure.gpu_model, sure.assumed[0][0]) == ("h100", "gpu_type")
    assert (unsure.gpu_model, unsure.assumed) == ("", ())
    (past,) = told(past=(FINISHED | {"NodeList": "n1"},)).jobs
    assert (past.gpu_model, past.assumed[0][0]) == ("h100", "gpu_type")


def test_what_has_no_gpu_is_counted_by_reason() -> None:
    """A job that only accounting runs is named."""
    none = {"job_id": 10, "job_state": "PENDING"}
    runaway = FINISHED | {"JobIDRaw": "11", "State": "RUNNING", "End": "Unknown"}
    collected = told(none, past=(runaway,))
    assert dict(collected.report.dropped) == {"no-gpu": 1, "runaway": 1}
    assert collected.jobs == ()
    assert collected.report.reason == "no job with GPUs in the window"


def test_a_job_that_shrank_is_counted_once_at_any_time() -> None:
    """With accounting its open rows start at the resize, without it at the job's start."""
    resized_at = END - timedelta(minutes=5)
    job = RUNNING | {"resize_time": int(resized_at.timestamp())}
    with_past, without = (told(job, past=past).allocations for past in ((), None))
    assert set(with_past["started_at"]) == {pd.Timestamp(resized_at)}
    assert set(without["started_at"]) == {pd.Timestamp(END - timedelta(minutes=10))}


def test_a_job_that_ended_keeps_the_controllers_richer_facts() -> None:
    """Known to both, it is told once, from the queue; what is long over is left out."""
    over = RUNNING | {
        "job_id": 5,
        "job_state": ["TIMEOUT"],
        "end_time": int(END.timestamp()) - 60,
        "tres_per_node": "gres:gpu:h100:2",
        "gres_detail": [],
    }
    (job,) = told(over, past=(FINISHED,)).jobs
    assert job.scheduler is not None
    assert (job.scheduler.state, job.scheduler.reason) == (JobState.FAILED, "TIMEOUT")
    assert dict(job.scheduler.extra)["gres"] == "gres:gpu:h100:2"
    long_over = over | {"start_time": 1_000, "end_time": int(WINDOW.start.timestamp()) - 1}
    assert told(long_over, past=None).jobs == ()
    assert told(long_over, past=None).allocations.empty


def test_hidden_jobs_show_in_completeness() -> None:
    """Nodes that report more GPUs in use than the visible jobs hold."""
    busy = BOARDS | {"gres_used": "gpu:h100:8(IDX:0-7)"}
    report = told(RUNNING, nodes=(busy,)).report
    assert report.completeness_ratio == 0.25
    assert "nodes report 8 GPUs in use, the visible jobs hold 2" in report.warnings[0]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETED"])
def test_the_wait_before_a_requeue_is_read_from_accounting(state: str) -> None:
    """Whatever the job does since; a stretch of the present wait is no earlier one."""
    requeued = FINISHED | {"State": "REQUEUED", "JobIDRaw": "7", "Submit": "2026-01-03T11:30:00"}
    again = requeued | {"State": "COMPLETED", "Submit": "2026-01-05T11:50:00", "ReqTRES": ""}
    again |= {"Start": "2026-01-05T11:51:00", "End": "2026-01-05T11:52:00"}
    submitted = datetime(2026, 1, 5, 11, 50, tzinfo=UTC).timestamp()
    now = RUNNING | {"job_state": state, "submit_time": int(submitted)}
    if state == "PENDING":
        now |= {"nodes": "", "gres_detail": [], "tres_per_node": "gres:gpu:h100:2"}
    queue = () if state == "COMPLETED" else (now,)
    past = (requeued, again) if state == "COMPLETED" else (requeued,)
    (job,) = told(*queue, past=past, models={"h100": "H100-SXM5-80GB"}).jobs
    assert job.scheduler is not None
    assert job.scheduler.submitted_at == datetime(2026, 1, 5, 11, 50, tzinfo=UTC)
    assert job.scheduler.earlier_waits == (
        JobWait(
            submitted_at=datetime(2026, 1, 3, 11, 30, tzinfo=UTC),
            started_at=datetime(2026, 1, 5, 11, 30, tzinfo=UTC),
            gpu_count=4,
            gpu_model="H100-SXM5-80GB",
        ),
    )
