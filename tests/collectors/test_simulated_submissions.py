"""A job submitted to the simulated cluster runs once, on free boards, and disturbs nobody."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.simulated import NOW, give, held, make_cluster
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from collectors.simulated.cluster import Phase, SimulatedCluster
from collectors.simulated.fleet import SimulatedFleet
from collectors.simulated.holdings import SubmittedJob
from data.base.errors import ChangeRefusedError

A100 = "A100-SXM4-80GB"


def order(gpus: int, *, hours: float = 4, mark: str = "mark", name: str = "job") -> SubmittedJob:
    """A job of so many boards for so long."""
    return SubmittedJob(
        name=name,
        team="team",
        places=("",) * gpus,
        since=0,
        until=round(hours * 3600),
        memory_ratio=0.5,
        mark=mark,
    )


def send(cluster: SimulatedCluster, job: SubmittedJob, nodes: int = 1, at: datetime = NOW) -> str:
    """Submit a job on A100s."""
    return cluster.submit(job, gpu_model=A100, nodes=nodes, clock=lambda: at)


def free(cluster: SimulatedCluster, at: datetime) -> dict[str, set[str]]:
    """The free boards of each node."""
    return {entry.node: set(entry.free) for entry in cluster.free_boards(at)}


def by_board(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples in an order that no change of a job shifts."""
    return samples.sort_values(["sampled_at", "gpu_uuid", "mig_instance"], ignore_index=True)


@settings(max_examples=examples(12), deadline=None)
@given(
    each=st.integers(1, 2),
    nodes=st.integers(1, 2),
    hours=st.sampled_from([0.5, 2.0, 7.25]),
    later=st.integers(0, 72),
)
def test_it_has_free_boards_for_its_time_and_the_others_are_as_before(
    tmp_path_factory: pytest.TempPathFactory, each: int, nodes: int, hours: float, later: int
) -> None:
    """Telemetry names it on these boards from its start to its end; all other samples are equal."""
    cluster = make_cluster(tmp_path_factory.mktemp("cluster"))
    at = NOW + timedelta(hours=later)
    before = free(cluster, at)
    try:
        job = send(cluster, order(each * nodes, hours=hours), nodes, at)
    except ChangeRefusedError:
        rooms = [
            entry
            for entry in cluster.free_boards(at)
            if entry.gpu_model == A100 and len(entry.free) >= each
        ]
        assert len(rooms) < nodes
        assert cluster.fleet() == make_cluster(tmp_path_factory.mktemp("other")).fleet()
        return
    (stored,) = cluster.fleet().orders
    boards = set(stored.places)
    taken = {node: keys - free(cluster, at)[node] for node, keys in before.items()}
    assert {key for keys in taken.values() for key in keys} == boards
    assert sorted(len(keys) for keys in taken.values() if keys) == [each] * nodes
    span = (at - timedelta(hours=1), at + timedelta(hours=hours + 1))
    samples = cluster.fleet().history(*span, 300)
    usual = SimulatedFleet(seed=7, nodes=8).history(*span, 300)
    mine = samples[samples["job_id"] == job]
    assert set(mine["gpu_uuid"]) == boards
    assert mine["sampled_at"].min() > at
    assert mine["sampled_at"].max() <= at + timedelta(hours=hours)
    assert mine["utilization_ratio"].mean() > 0.3
    assert_frame_equal(
        *(by_board(frame[~frame["gpu_uuid"].isin(boards)]) for frame in (samples, usual))
    )
    assert free(cluster, at + timedelta(hours=hours, seconds=2)) == free(
        make_cluster(tmp_path_factory.mktemp("other")), at + timedelta(hours=hours, seconds=2)
    )


def test_its_phase_is_that_of_its_time(tmp_path: Path) -> None:
    """Before, during and after; no other job has one."""
    cluster = make_cluster(tmp_path)
    job = send(cluster, order(1, hours=3))
    phases = [cluster.phase(job, NOW + timedelta(hours=hours)) for hours in (0, 1, 2.9, 3.1, 90)]
    assert phases == [Phase.WAITING, Phase.RUNNING, Phase.RUNNING, Phase.ENDED, Phase.ENDED]
    assert cluster.phase("team/other-0", NOW) is None


def test_one_mark_starts_one_job(tmp_path: Path) -> None:
    """A job that is sent again after a lost answer runs once."""
    cluster = make_cluster(tmp_path)
    assert send(cluster, order(1)) == send(cluster, order(1)) == cluster.marked("mark")
    assert len(cluster.fleet().orders) == 1
    assert cluster.marked("another") == ""
    assert send(cluster, order(1, mark="another", name="other")) != send(cluster, order(1))


def test_a_job_that_loses_boards_takes_longer_and_then_frees_all(tmp_path: Path) -> None:
    """Half of its boards from the first hour on: the other three hours become six."""
    cluster = make_cluster(tmp_path)
    job = send(cluster, order(2, hours=4))
    has = held(cluster, job, NOW + timedelta(hours=1))
    half = type(has)(gpu_model=has.gpu_model, gpu_count=1)
    give(cluster, job, half, NOW + timedelta(hours=1))
    assert cluster.phase(job, NOW + timedelta(hours=6.9)) is Phase.RUNNING
    assert cluster.phase(job, NOW + timedelta(hours=7.1)) is Phase.ENDED
    (tmp_path / "other").mkdir()
    after = NOW + timedelta(hours=7.1)
    assert free(cluster, after) == free(make_cluster(tmp_path / "other"), after)


def test_without_room_nothing_is_kept(tmp_path: Path) -> None:
    """The refusal counts nodes; the file is as it was."""
    cluster = make_cluster(tmp_path)
    send(cluster, order(1))
    text = cluster.path.read_text(encoding="utf-8")
    with pytest.raises(ChangeRefusedError, match=f"has 0 of 2 nodes with 8 free {A100}"):
        send(cluster, order(16, mark="large"), nodes=2)
    assert cluster.path.read_text(encoding="utf-8") == text


def test_a_file_of_before_is_read(tmp_path: Path) -> None:
    """One that knows of no submitted jobs."""
    cluster = make_cluster(tmp_path)
    cluster.forget()
    document = json.loads(cluster.path.read_text(encoding="utf-8"))
    del document["orders"]
    cluster.path.write_text(json.dumps(document), encoding="utf-8")
    assert send(cluster, order(1)) == "team/job-0"
