"""Changes of several clusters in one store: each reaches its own, under its own names."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.apply_bench import Clock
from beds.clusters import ALIKE, changed_clusters, write_clusters
from beds.simulated import NOW, held, idle_job
from factories import make_job, make_plan, make_recommendation

from collectors.simulated.cluster import SimulatedCluster
from dashboard.apply import applier_for, appliers_near, build_appliers
from dashboard.apply.contract.applier import (
    AccessCheckingApplier,
    ClosingApplier,
    NotingApplier,
    ReviewedApplier,
)
from dashboard.apply.contract.multi_cluster import cluster_of, in_cluster, in_local_names
from dashboard.apply.worker.change_file import change_for
from dashboard.apply.worker.worker import Worker
from dashboard.decisions.service import DecisionService
from data.facts.jobs import Platform
from data.records.actions import ACTIONS, Action
from data.records.changes import Change
from data.records.commands import Person, Work
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.settings.load import load_settings
from data.store import open_store
from data.store.engine.record_json import from_json

ROBIN = Person(name="Robin", via="local")


def settings_in(folder: Path) -> Settings:
    """The settings of the three."""
    return load_settings(write_clusters(folder, seeds=ALIKE), environ={}).settings


def reclaim(folder: Path, cluster: str) -> Recommendation:
    """Take the boards of an idle job of a cluster."""
    file = folder / f"{cluster or 'main'}.json"
    simulated = SimulatedCluster(path=file, seed=ALIKE[cluster], nodes=8)
    job = idle_job(simulated)
    now = held(simulated, job)
    return make_recommendation(
        action=Action.RECLAIM,
        job_id=f"{job}@{cluster}" if cluster else job,
        job_name=job,
        created_at=NOW,
        expires_at=NOW + timedelta(hours=24),
        now=now,
        proposed=replace(now, gpu_count=0),
    )


def work(worker: Worker, clock: Clock) -> None:
    """Do what comes due within ten minutes."""
    for _minute in range(10):
        clock.forward(minutes=1)
        while worker.work_once():
            pass


@pytest.mark.parametrize("cluster", ALIKE)
def test_a_change_reaches_its_own_cluster_and_comes_back(tmp_path: Path, cluster: str) -> None:
    """Approved, applied, undone by the worker; the same job of another cluster keeps its boards."""
    settings, clock = settings_in(tmp_path), Clock(NOW)
    one = reclaim(tmp_path, cluster)

    def appliers(chosen: Settings) -> Any:
        return build_appliers(chosen, clock=clock)

    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as store:
        store.keep_cycle(
            cycle_id="c",
            started_at=NOW,
            finished_at=NOW,
            forecasts=(),
            plan=make_plan(plan_id=one.plan_id, created_at=NOW),
            recommendations=(one,),
        )
        service = DecisionService(
            store=store, settings=lambda: settings, appliers=appliers, clock=clock
        )
        worker = Worker(store=store, settings=lambda: settings, appliers=appliers, clock=clock)
        service.approve_and_apply(one.digest, ROBIN)
        work(worker, clock)
        assert store.reader.states()[one.digest] == "applied"
        assert changed_clusters(tmp_path) == {cluster}
        (row,) = store.reader.journal(digest=one.digest, events=(str(Work.PREPARED),))
        change = from_json(Change, row.record)
        assert change.recommendation_digest == one.digest
        assert change.target.name == one.job_id
        service.roll_back(one.digest, ROBIN)
        work(worker, clock)
        assert store.reader.states()[one.digest] == "rolled-back"
    file = tmp_path / f"{cluster or 'main'}.json"
    simulated = SimulatedCluster(path=file, seed=ALIKE[cluster], nodes=8)
    assert held(simulated, in_local_names(one).job_id, clock()) == one.now


@pytest.mark.parametrize("action", sorted(ACTIONS))
@pytest.mark.parametrize("cluster", [*ALIKE, "nowhere"])
def test_no_applier_gets_a_change_of_another_cluster(
    tmp_path: Path, action: Action, cluster: str
) -> None:
    """Whatever it changes, a job or a node; of a cluster without a target nothing is sent."""
    appliers = build_appliers(settings_in(tmp_path))
    name = f"n1@{cluster}" if cluster else "n1"
    one = make_recommendation(
        action=action,
        job_id="" if action.spec.of_node else name,
        job_name=name,
        details=(("node", name),) if action.spec.of_node else (),
    )
    near = appliers_near(appliers, one)
    assert [cluster_of(applier) for applier in near] == [cluster] * (cluster in ALIKE)
    applier = applier_for(appliers, one)
    assert applier is None or cluster_of(applier) == cluster
    if "simulated" in action.spec.appliers and cluster in ALIKE:
        assert applier is not None


class Plain:
    """An applier without any."""

    name = "plain"


@pytest.mark.parametrize(
    "optional", [ClosingApplier, ReviewedApplier, AccessCheckingApplier, NotingApplier]
)
def test_an_applier_keeps_its_optional_parts(optional: type) -> None:
    """Those that it has, and no others: the worker asks by them."""
    applier: Any = type("One", (), {name: lambda *_a, **_k: None for name in vars(optional)})()
    assert isinstance(in_cluster(applier, "paris"), optional)
    plain: Any = Plain()
    assert not isinstance(in_cluster(plain, "paris"), optional)


@pytest.mark.parametrize("platform", [Platform.KUBERNETES, Platform.SLURM])
def test_a_change_file_has_the_names_of_its_cluster_and_says_which_it_is(
    platform: Platform,
) -> None:
    """What a person would run there, word for word, but for the line that names the cluster."""
    job_id = "slurm:12" if platform is Platform.SLURM else "ml/deployment/ranker"
    now = Configuration(gpu_model="H100-SXM5-80GB", gpu_count=2)
    here = make_recommendation(
        job_id=job_id,
        job_name="ranker",
        platform=platform,
        now=now,
        proposed=replace(now, gpu_count=0),
        action=Action.RECLAIM,
    )
    there = replace(here, job_id=f"{job_id}@paris")
    plain, named = (
        change_for(one, (), make_job(one.job_id, platform=platform)).text for one in (here, there)
    )
    lines = named.split("\n")
    assert [line for line in lines if "cluster paris" in line] == [
        "# for cluster paris: run it there"
    ]
    lines.remove("# for cluster paris: run it there")
    assert "@paris" not in named
    assert (
        "\n".join(lines)
        .replace(there.digest, here.digest)
        .replace(there.digest[:12], here.digest[:12])
        == plain
    )
