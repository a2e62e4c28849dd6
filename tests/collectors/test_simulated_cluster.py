"""What is changed in the simulated cluster happens in the simulated fleet, and only that."""

import json
import os
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from beds.simulated import (
    H100,
    NOW,
    give,
    held,
    idle_job,
    job_where,
    make_cluster,
    readings,
    small_service,
    training,
)
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.shared.collector import Window
from collectors.simulated.cluster import SimulatedCluster
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from data.base.errors import ChangeRefusedError, StalePlanError, UnexpectedAnswerError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.plans import Configuration

LATER = NOW + timedelta(hours=2)


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """The cluster of the demo."""
    return make_cluster(tmp_path)


def test_its_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask lets others read."""
    before = os.umask(0o022)
    try:
        make_cluster(tmp_path).forget()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes
    assert set(modes.values()) == {0o600}


def work(rows: pd.DataFrame) -> float:
    """Work of a job's samples: utilization times what its GPUs can do."""
    catalogue = load_gpu_catalogue()
    speed = rows["gpu_model"].map(lambda model: catalogue.get(model).relative_speed)
    return float((rows["utilization_ratio"] * speed).sum())


def test_before_a_change_the_past_is_as_it_was(cluster: SimulatedCluster) -> None:
    """No sample at or before the change moves, however much is changed."""
    before = cluster.fleet().history(NOW - timedelta(hours=6), NOW, 300)
    give(cluster, idle_job(cluster), Configuration(gpu_model=H100, gpu_count=0))
    give(
        cluster,
        small_service(cluster),
        Configuration(gpu_model=H100, gpu_count=1, mig_profile="2g.20gb"),
    )
    after = cluster.fleet().history(NOW - timedelta(hours=6), NOW, 300)
    pd.testing.assert_frame_equal(before, after)


def test_a_reclaimed_job_ends_and_its_board_is_free(cluster: SimulatedCluster) -> None:
    """The board goes on reporting, for nobody; the job is in no list any more."""
    job = idle_job(cluster)
    board = set(readings(cluster, job)["gpu_uuid"])
    give(cluster, job, Configuration(gpu_model=H100, gpu_count=0))
    assert readings(cluster, job).empty
    rows = cluster.fleet().history(NOW, LATER, 300)
    assert set(rows[rows["gpu_uuid"].isin(board)]["job_id"]) == {""}
    assert job not in {
        entry.job_id for entry in cluster.fleet().jobs(NOW + timedelta(hours=1), LATER)
    }


def test_a_service_does_the_same_work_on_fewer_boards(cluster: SimulatedCluster) -> None:
    """Half the boards at twice the utilization, and less power than both drew."""
    job = small_service(cluster, boards=2)
    had = held(cluster, job)
    before = readings(cluster, job)
    give(cluster, job, replace(had, gpu_count=1))
    after = readings(cluster, job)
    assert len(set(after["gpu_uuid"])) == 1
    assert work(after) == pytest.approx(work(before), rel=0.03)
    assert after["power_watts"].sum() < before["power_watts"].sum()
    listed = {entry.job_id: entry for entry in cluster.fleet().jobs(NOW, LATER)}
    assert listed[job].gpu_count == 1


def test_a_service_that_is_given_too_little_is_saturated(cluster: SimulatedCluster) -> None:
    """What does not fit is not done: nothing runs above its utilization's limit."""
    job = job_where(cluster, lambda entry: not entry.idle and not entry.period_seconds
                    and entry.level > 0.5 and entry.devices[0].gpu_model == H100)  # fmt: skip
    give(cluster, job, Configuration(gpu_model=H100, gpu_count=1, mig_profile="1g.10gb"))
    after = readings(cluster, job)
    assert after["utilization_ratio"].median() == pytest.approx(0.98, abs=0.04)
    assert after["utilization_ratio"].max() <= 1


def test_a_board_is_cut_for_the_job_that_leaves_it(cluster: SimulatedCluster) -> None:
    """The job keeps an instance of its own board; the others of it are free for the next."""
    one = small_service(cluster)
    model = held(cluster, one).gpu_model
    give(cluster, one, Configuration(gpu_model=model, gpu_count=1, mig_profile="1g.10gb"))
    rows = readings(cluster, one)
    assert set(rows["mig_profile"]) == {"1g.10gb"}
    board = rows["gpu_uuid"].iloc[0]
    here = cluster.fleet().history(NOW, LATER, 300)
    here = here[here["gpu_uuid"] == board]
    assert set(here["mig_profile"]) == {"1g.10gb", "2g.20gb", "3g.40gb"}
    power = here.groupby("sampled_at")["power_watts"].nunique()
    assert (power == 1).all(), "the board's power is that of all its instances"


def test_a_cap_lowers_power_and_lengthens_the_run_by_its_law(cluster: SimulatedCluster) -> None:
    """Power stays below the cap; the run ends later by the slowdown; the next run is uncapped."""
    job = training(cluster)
    had = held(cluster, job)
    fleet, now = cluster.fleet(), int(NOW.timestamp())
    tenant, ends = next(
        (entry, ends)
        for entry in fleet.tenants
        for run, _begins, ends in fleet.runs(entry, now, now)
        if entry.job_id(run) == job
    )
    before = readings(cluster, job, hours=3)
    give(cluster, job, replace(had, power_cap_watts=420.0))
    after = readings(cluster, job, hours=3)
    assert set(after["power_limit_watts"]) == {420.0}
    assert after["power_watts"].max() <= 420
    assert after["power_watts"].mean() < 0.9 * before["power_watts"].mean()
    capped = cluster.fleet()
    _run, _begins, later = capped.runs(tenant, now, now)[0]
    (change,) = capped.changes
    pace = capped.settlement.effect(tenant, change).pace
    assert 0.7 < pace < 1
    assert later - now == pytest.approx((ends - now) / pace, abs=5)
    following = capped.runs(tenant, later + 1, later + tenant.period_seconds)[-1]
    at = following[1] + 3600
    assert capped.settlement.holding_at(tenant, at).cap_watts is None


def test_the_energy_counter_follows_the_changed_power(cluster: SimulatedCluster) -> None:
    """Counter differences are the power in between, across a change too."""
    give(
        cluster, training(cluster), replace(held(cluster, training(cluster)), power_cap_watts=420.0)
    )
    rows = cluster.fleet().history(NOW - timedelta(hours=1), NOW + timedelta(hours=1), 300)
    for _board, entry in rows[rows["mig_instance"] == ""].groupby("gpu_uuid"):
        counter, power = entry["energy_joules"].to_numpy(), entry["power_watts"].to_numpy()
        seconds = entry["sampled_at"].diff().dt.total_seconds().to_numpy()[1:]
        whole = (seconds == 300) & (np.diff(counter) >= 0)
        assert np.diff(counter)[whole] == pytest.approx((power[:-1] * 300)[whole], rel=1e-6)


def test_the_way_back_gives_what_was_there(cluster: SimulatedCluster) -> None:
    """After a change and its undoing the job reads as in a fleet never changed.

    All but the energy counters, which remember.
    """
    job = small_service(cluster)
    had = held(cluster, job)
    untouched = readings(cluster, job, start=LATER).drop(columns="energy_joules")
    give(cluster, job, replace(had, mig_profile="2g.20gb"))
    give(cluster, job, had, LATER)
    again = readings(cluster, job, start=LATER).drop(columns="energy_joules")
    pd.testing.assert_frame_equal(untouched, again)


def test_a_board_that_was_given_away_is_not_taken_back(cluster: SimulatedCluster) -> None:
    """Undoing a reclaim finds another free board of the model, or refuses."""
    idle, other = idle_job(cluster), small_service(cluster)
    had = held(cluster, idle)
    first = cluster.job(idle, NOW)
    assert first is not None
    give(cluster, idle, replace(had, gpu_count=0))
    give(cluster, other, replace(held(cluster, other), gpu_model=H100, gpu_count=2))
    taken = cluster.job(other, LATER)
    assert taken is not None
    assert set(first.places) & set(taken.places)
    give(cluster, idle, had, LATER)
    again = cluster.job(idle, LATER + timedelta(minutes=1))
    assert again is not None
    assert not set(again.places) & set(taken.places)


def test_what_there_is_no_room_for_is_refused(cluster: SimulatedCluster) -> None:
    """More boards than are free, or a slice of a board that cannot be cut: nothing changes."""
    job = small_service(cluster, boards=2)
    had = held(cluster, job)
    for wanted in (replace(had, gpu_count=60), replace(had, mig_profile="7g.80gb")):
        with pytest.raises(ChangeRefusedError, match="room for"):
            give(cluster, job, wanted)
        assert cluster.room_for(job, wanted, NOW)
    assert held(cluster, job) == had


def test_of_two_changes_from_the_same_state_one_is_taken(cluster: SimulatedCluster) -> None:
    """Eight threads want to halve the same job at once: one does, the others are told."""
    job = small_service(cluster, boards=2)
    had = held(cluster, job)
    said: list[str] = []

    def halve() -> None:
        try:
            cluster.change(job, before=had, after=replace(had, gpu_count=1), clock=lambda: NOW)
        except StalePlanError:
            said.append("stale")
        else:
            said.append("done")

    threads = [threading.Thread(target=halve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["done"] + ["stale"] * 7
    assert len(cluster.fleet().changes) == 1


def test_a_job_that_does_not_run_is_not_changed(cluster: SimulatedCluster) -> None:
    """A run that is over and a job of elsewhere are unknown."""
    for job in ("slurm:1", "prod/checkout-0"):
        assert cluster.job(job, NOW) is None
        with pytest.raises(StalePlanError, match="does not run"):
            cluster.change(
                job,
                before=Configuration(gpu_model=H100, gpu_count=1),
                after=Configuration(gpu_model=H100, gpu_count=0),
                clock=lambda: NOW,
            )


@pytest.mark.parametrize("text", ["{", "[]", '{"seed": 7, "nodes": 8, "changes": [{"since": 1}]}'])
def test_a_broken_file_is_named(cluster: SimulatedCluster, text: str) -> None:
    """It is never taken for an empty one, which would silently undo every change."""
    cluster.path.write_text(text)
    with pytest.raises(UnexpectedAnswerError, match=r"cluster\.json"):
        cluster.fleet()


def test_the_file_of_another_fleet_is_refused(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """Its changes name boards that this fleet does not have."""
    give(cluster, idle_job(cluster), Configuration(gpu_model=H100, gpu_count=0))
    assert len(json.loads(cluster.path.read_text())["changes"]) == 1
    with pytest.raises(UnexpectedAnswerError, match="another simulated fleet"):
        make_cluster(tmp_path, nodes=4).fleet()
    cluster.forget()
    assert cluster.fleet() == SimulatedFleet(seed=7, nodes=8)


def test_the_source_obeys_what_was_changed_since_it_was_made(cluster: SimulatedCluster) -> None:
    """A collector that lives on asks for the changes at every collection."""
    source = SimulatedFleetCollector(
        fleet=SimulatedFleet(seed=7, nodes=8), step_seconds=300, changed=cluster.fleet
    )
    window = Window(start=NOW, end=LATER)
    job = idle_job(cluster)
    assert job in set(source.collect(window).samples["job_id"])
    give(cluster, job, Configuration(gpu_model=H100, gpu_count=0))
    assert job not in set(source.collect(window).samples["job_id"])


def free_for_all(cluster: SimulatedCluster, at: datetime) -> None:
    """Every board and instance has at most one holder, and no cut board a holder of the whole."""
    fleet = cluster.fleet()
    second = int(at.timestamp())
    places = [
        key
        for tenant in fleet.tenants
        for key in fleet.settlement.holding_at(tenant, second).places
    ]
    assert len(places) == len(set(places))
    whole = {key for key in places if "/" not in key}
    assert not whole & {key.partition("/")[0] for key in places if "/" in key}


@settings(deadline=None, max_examples=examples(10))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 20),
            st.sampled_from([0, 1, 2, 4]),
            st.sampled_from(["", "", "1g.10gb", "2g.20gb", "3g.40gb"]),
            st.sampled_from([H100, "A100-SXM4-80GB", "L40S-48GB"]),
            st.sampled_from([None, 300.0]),
        ),
        max_size=8,
    )
)
def test_whatever_is_asked_no_board_is_held_twice(
    tmp_path_factory: pytest.TempPathFactory,
    wishes: list[tuple[int, int, str, str, float | None]],
) -> None:
    """Any sequence of wishes, granted or refused, leaves a fleet that could be real."""
    cluster = make_cluster(tmp_path_factory.mktemp("wishes"), nodes=4)
    at = NOW
    for number, count, profile, model, cap in wishes:
        at += timedelta(hours=3)
        fleet, second = cluster.fleet(), int(at.timestamp())
        tenant = fleet.tenants[number % len(fleet.tenants)]
        runs = fleet.runs(tenant, second, second)
        if not runs:
            continue
        job = tenant.job_id(runs[0][0])
        wanted = Configuration(
            gpu_model=model, gpu_count=count, mig_profile=profile if count else "",
            power_cap_watts=cap if count else None,
        )  # fmt: skip
        try:
            give(cluster, job, wanted, at)
        except ChangeRefusedError:
            continue
        assert held(cluster, job, at + timedelta(seconds=1)).gpu_count == count
    for hours in (0, 12, 120):
        free_for_all(cluster, at + timedelta(hours=hours))
    rows = cluster.fleet().history(at - timedelta(hours=2), at + timedelta(hours=1), 900)
    assert not rows.duplicated(["gpu_uuid", "mig_instance", "sampled_at"]).any()
    assert rows["utilization_ratio"].between(0, 1).all()
