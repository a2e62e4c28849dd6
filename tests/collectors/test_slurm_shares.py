"""Jobs of Slurm that hold shares of GPUs (shard, mps): as releases spell them, and real."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode

from collectors.shared.collector import Window
from collectors.slurm.accounting import ACCOUNTING_FIELDS, read_accounting_row
from collectors.slurm.backend import SlurmAnswers
from collectors.slurm.jobs import SlurmCollector, slurm_collector
from collectors.slurm.records import read_node, read_queue_job
from collectors.slurm.values import gpu_shares_of
from data.base.clock import utc_now
from data.boards.board_shares import board_shares, boards_of_jobs
from data.boards.unplanned_jobs import occupied
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import JobState
from data.records.feasible_changes import configuration_refusal
from data.records.plans import Configuration
from data.settings.sources import SlurmSettings

END = datetime(2026, 3, 2, 12, tzinfo=UTC)
NODE = {
    "name": "w1",
    "state": "mixed",
    "gres": "gpu:l40s:3(S:0),shard:l40s:12(S:0)",
    "partitions": ["big"],
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
    nodes: tuple[dict[str, Any], ...],
    past: tuple[dict[str, str], ...] | None = None,
) -> Collected:
    """What the collector makes of these records."""
    said = SlurmAnswers(
        queue=tuple(read_queue_job(entry) for entry in queue),
        nodes=tuple(read_node(node) for node in nodes),
        past=None if past is None else tuple(read_accounting_row(entry) for entry in past),
        warnings=(),
        dropped=Counter(),
    )
    window = Window(start=END - timedelta(hours=1), end=END)
    models = {"l40s": "L40S-48GB"}
    return SlurmCollector(Saying(said), models, load_gpu_catalogue()).collect(window)


def job(number: int, detail: str, **more: Any) -> dict[str, Any]:
    """A job that runs on w1."""
    return {
        "job_id": number,
        "job_state": "RUNNING",
        "name": f"j{number}",
        "user_name": "u",
        "partition": "big",
        "nodes": "w1",
        "gres_detail": [detail],
        "tres_per_node": "gres/shard:3",
        "start_time": int(END.timestamp()) - 600,
    } | more


@pytest.mark.parametrize(
    ("text", "indices", "parts", "amount"),
    [
        ("shard:3(IDX:1)", ("1",), None, 3),
        ("shard:l40s:6(IDX:0-1)", ("0", "1"), None, 6),
        ("shard:l40s:3(0/4,3/4,0/4)", ("1",), (0.75,), 3),
        ("shard:5(4/4,0/4,1/4)", ("0", "2"), (1.0, 0.25), 5),
        ("mps:l40s:60(60/100,0/100)", ("0",), (0.6,), 60),
        ("gres/shard:l40s=3,gres/shard=3", None, None, 3),
        ("gres:mps:30", None, None, 30),
        ("shard:3(IDX:N/A)", None, None, 3),
        ("shard:3(what)", None, None, 3),
    ],
)
def test_shares_are_read_as_each_release_writes_them(
    text: str, indices: tuple[str, ...] | None, parts: tuple[float, ...] | None, amount: int
) -> None:
    """22.05 names indices, later releases what is held of each GPU."""
    (found,) = gpu_shares_of(text)
    assert (found.indices, found.parts, found.amount) == (indices, parts, amount)
    assert found.count == len(indices or "1")


@pytest.mark.parametrize("text", ["", "gpu:l40s:2(IDX:0-1)", "shard:0", "sharding:2", "cpu=4"])
def test_what_names_no_shares_is_none(text: str) -> None:
    """Nothing is taken for a share that is not called one."""
    assert gpu_shares_of(text) == ()


@pytest.mark.parametrize(
    "details",
    [
        ("shard:l40s:4(4/4,0/4,0/4)", "shard:l40s:1(0/4,1/4,0/4)", "shard:l40s:3(0/4,3/4,0/4)"),
        ("shard:4(IDX:0)", "shard:1(IDX:1)", "shard:3(IDX:1)"),
    ],
)
def test_jobs_with_shards_are_jobs_that_share_their_boards(details: tuple[str, ...]) -> None:
    """Two are on board 1 and have half of it each, one is alone on board 0; board 2 is free."""
    used = NODE | {"gres_used": "gpu:l40s:0(IDX:N/A),shard:l40s:8(4/4,4/4,0/4)"}
    found = told(*(job(7 + n, text) for n, text in enumerate(details)), nodes=(used,))
    assert [(entry.gpu_count, entry.gpu_model) for entry in found.jobs] == [(1, "L40S-48GB")] * 3
    assert found.report.dropped == ()
    assert found.report.completeness_ratio == 1.0
    rows = found.allocations
    assert list(zip(rows["gpu_index"], rows["gpu_count"], strict=True)) == [
        ("0", 1.0), ("1", 0.25), ("1", 0.75),
    ]  # fmt: skip
    shares = board_shares((), found.jobs, load_gpu_catalogue())
    assert {name: share.boards for name, share in shares.items()} == {
        "slurm:7": 1.0, "slurm:8": 0.5, "slurm:9": 0.5,
    }  # fmt: skip
    assert shares["slurm:8"].others == ("slurm:9",)
    assert occupied(found.jobs, (), found.nodes) == {("w1", "L40S-48GB"): 2}
    for entry in found.jobs:
        none = Configuration(gpu_model="L40S-48GB", gpu_count=2)
        assert "shares of GPUs" in configuration_refusal(
            entry, none, may_requeue=True, behind_others=True
        )


def test_jobs_that_hide_what_they_hold_lower_the_completeness() -> None:
    """A node reports two boards with shards in use, and one job is visible."""
    used = NODE | {"gres_used": "gpu:l40s:1(IDX:0),shard:l40s:5(0/4,4/4,1/4)"}
    found = told(job(7, "shard:l40s:4(0/4,4/4,0/4)"), nodes=(used,))
    assert found.report.completeness_ratio == pytest.approx(1 / 3)


def test_a_job_that_waits_for_shards_or_held_them_is_told() -> None:
    """One GPU a node, whose index is not known and of which no whole board is claimed."""
    waits = job(8, "", job_state="PENDING", nodes="", gres_detail=[], tres_per_node="gres:shard:2")
    over = dict.fromkeys(ACCOUNTING_FIELDS, "") | {
        "JobIDRaw": "5", "JobID": "5", "State": "COMPLETED", "Submit": "2026-03-02T11:00:00",
        "Start": "2026-03-02T11:30:00", "End": "2026-03-02T11:50:00", "NodeList": "w1",
        "ReqTRES": "cpu=1,gres/shard=2", "AllocTRES": "cpu=1,gres/shard:l40s=2,gres/shard=2",
        "Partition": "big",
    }  # fmt: skip
    found = told(waits, past=(over,), nodes=(NODE,))
    past, waiting = found.jobs
    assert (past.gpu_count, past.gpu_model) == (1, "L40S-48GB")
    assert (waiting.gpu_count, waiting.scheduler and waiting.scheduler.state) == (
        1, JobState.PENDING,
    )  # fmt: skip
    assert found.allocations["gpu_count"].isna().all()
    assert board_shares((), found.jobs, load_gpu_catalogue()) == {}


def board_of(shown: str) -> str:
    """Return the index of the one board that scontrol shows a job on.

    `IDX:0`, or from 23.11 on for shares the parts of each board of the node: `2(0/4,2/4)`.
    """
    (which,) = re.findall(r" GRES=\S*\((\S+)\)", shown)
    if which.startswith("IDX:"):
        return str(which.removeprefix("IDX:"))
    used = [int(part.partition("/")[0]) for part in which.split(",")]
    (index,) = [at for at, count in enumerate(used) if count]
    return str(index)


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """A real Slurm whose nodes give out shards, and MPS."""
    nodes = (
        BedNode(name="s-01", gpu_type="a100", gpus=3, shares=("shard", 12), features="a"),
        BedNode(name="m-01", gpu_type="l40s", gpus=2, shares=("mps", 200), features="m"),
        BedNode(name="c-01", features="c"),
    )
    with running_slurm(nodes=nodes, accounting=True, rest=True) as cluster:
        yield cluster


@pytest.mark.slurm
@pytest.mark.parametrize("mode", ["commands", "rest"])
def test_a_real_slurm_gives_out_shares_and_all_holders_are_told(bed: SlurmBed, mode: str) -> None:
    """What the controller says of each job's GPU is what is told of it; the boards add up."""
    if not bed.states():
        for request in ("shard:4", "shard:2", "shard:2", "gpu:1", "mps:30", "mps:50"):
            bed.submit(f"--gres={request}", "-c1")
        bed.until("all run", lambda: set(bed.states().values()) == {"RUNNING"})
    settings = SlurmSettings(
        mode=mode,
        conf_file=str(bed.conf),
        rest_url=bed.rest_url,
        rest_user=bed.plan.user,
        rest_token=bed.token() if mode == "rest" else "",
        gpu_models="a100=A100-SXM4-80GB,l40s=L40S-48GB",
    )
    now = utc_now() + timedelta(seconds=1)
    window = Window(start=now - timedelta(hours=1), end=now)
    found = slurm_collector(settings, load_gpu_catalogue()).collect(window)
    assert found.report.dropped == (("node-without-gpu", 1),)
    assert found.report.completeness_ratio == 1.0
    shares = board_shares((), found.jobs, load_gpu_catalogue())
    assert sorted(round(share.boards, 6) for share in shares.values()) == [0.5] * 4 + [1.0]
    assert boards_of_jobs(found.jobs, shares) == pytest.approx(4.0)
    rows = found.allocations
    for entry in found.jobs:
        shown = bed.run("scontrol", "-d", "show", "job", entry.job_id.removeprefix("slurm:"))
        assert set(rows[rows["job_id"] == entry.job_id]["gpu_index"]) == {board_of(shown)}
