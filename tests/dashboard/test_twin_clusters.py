"""Clusters in one store never meet: what one gets is what it would get alone.

The oracle is the product on one cluster: a second one that is the same in all but its name, with
the same names of nodes, pods and jobs, must change nothing of the first and get the same itself.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.shared.collector import Collector, Window
from collectors.shared.multi_cluster import InCluster
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.accounting.cost.statement import make_cost_statement
from dashboard.accounting.energy.build import make_statement
from dashboard.accounting.energy.statement import GroupBy
from dashboard.accounting.facility.capacity import capacity_rows
from dashboard.cycle.run_cycle import CycleOutcome, run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.submission.job.fleet import fleet_of_store
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.cluster_names import MAIN_CLUSTER, cluster_in, name_in_cluster
from data.facts.collected import Collected
from data.facts.job_pages import JobFilter
from data.records.actions import Action
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store, open_store

NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)
SETTINGS = Settings(
    planning=PlanningSettings(history_days=2, model="seasonal-naive", budget_seconds=60)
)


@dataclass(frozen=True, kw_only=True)
class OtherBoards:
    """A source with boards of its own: no two boards of the world share a UUID."""

    inner: Collector
    mark: str

    @property
    def name(self) -> str:
        """As the inner one."""
        return self.inner.name

    def collect(self, window: Window) -> Collected:
        """The same facts of other boards."""
        found = self.inner.collect(window)
        frames = {
            name: frame.assign(gpu_uuid=self.mark + frame["gpu_uuid"])
            for name in ("samples", "xids", "activity")
            if not (frame := getattr(found, name)).empty
        }
        return replace(found, **frames)


def fleet(nodes: int, seed: int = 7) -> Collector:
    """A simulated fleet of some nodes."""
    return SimulatedFleetCollector(fleet=SimulatedFleet(seed=seed, nodes=nodes), step_seconds=300)


def planned(folder: Path, *collectors: Collector) -> tuple[CycleOutcome, Store]:
    """A cycle on these sources."""
    store = open_store(f"duckdb:///{folder}/twins.duckdb")
    world = replace(build_world(SETTINGS, store=store), collectors=collectors)
    return run_cycle(world, now=NOW), store


def said(found: tuple[Recommendation, ...], cluster: str) -> dict[tuple[str, Action], object]:
    """What a cluster's jobs are recommended, in its own names."""
    return {
        (name_in_cluster(one.target), one.action): (
            replace(one.proposed, shared_with=name_in_cluster(one.proposed.shared_with)),
            round(one.savings.gpu_hours.central, 6) if one.savings.gpu_hours else None,
        )
        for one in found
        if one.cluster == cluster
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> CycleOutcome:
    """One cluster."""
    outcome, store = planned(tmp_path_factory.mktemp("alone"), fleet(8))
    store.close()
    return outcome


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[CycleOutcome, Store]:
    """Two that are the same in all but their name."""
    other = InCluster(inner=OtherBoards(inner=fleet(8), mark="B-"), cluster="paris")
    return planned(tmp_path_factory.mktemp("twins"), fleet(8), other)


def test_each_gets_what_it_would_get_alone(
    alone: CycleOutcome, twins: tuple[CycleOutcome, Store]
) -> None:
    """Same proposals, same GPU-hours, for both; and there is something to compare."""
    outcome, _store = twins
    expected = said(alone.recommendations, "")
    assert len(expected) >= 5
    assert said(outcome.recommendations, "") == expected
    assert said(outcome.recommendations, "paris") == expected


def test_no_plan_puts_a_job_into_another_cluster(twins: tuple[CycleOutcome, Store]) -> None:
    """Every stay of every job is on a node of its own."""
    outcome, _store = twins
    assert outcome.plan is not None
    stays = [(path.job_id, stay.node) for path in outcome.plan.jobs for stay in path.stays]
    assert {cluster_in(node) for _job, node in stays} == {"", "paris"}
    assert [pair for pair in stays if cluster_in(pair[0]) != cluster_in(pair[1])] == []


def test_sums_over_clusters_are_those_of_the_fleet(twins: tuple[CycleOutcome, Store]) -> None:
    """Energy, money and boards: two equal halves of the whole."""
    _outcome, store = twins
    start = NOW - timedelta(hours=6)
    energy = make_statement(
        store.reader, start=start, end=NOW, settings=SETTINGS, by=GroupBy.CLUSTER
    )
    kwh = {row.key: row.gpu_energy_kwh.central for row in energy.rows if row.gpu_energy_kwh}
    assert set(kwh) == {MAIN_CLUSTER, "paris"}
    assert kwh["paris"] == pytest.approx(kwh[MAIN_CLUSTER])
    assert energy.total.gpu_energy_kwh is not None
    assert sum(kwh.values()) == pytest.approx(energy.total.gpu_energy_kwh.central)
    money = make_cost_statement(store.reader, SETTINGS, start=start, end=NOW, by=("cluster",))
    costs = {row.names[0]: row.cost for row in money.rows}
    assert costs["paris"] == pytest.approx(costs[MAIN_CLUSTER])
    assert sum(cost or 0.0 for cost in costs.values()) == pytest.approx(money.total.cost)
    boards = {row.gpu_model: row.boards for row in capacity_rows(store.reader, SETTINGS)}
    assert boards == {
        name + ending: count
        for name, count in boards.items()
        if "@" not in name
        for ending in ("", "@paris")
    }


def test_jobs_are_filtered_by_cluster(twins: tuple[CycleOutcome, Store]) -> None:
    """Half of them each, the main one by its word."""
    _outcome, store = twins
    assert store.reader.job_choices()["cluster"] == (MAIN_CLUSTER, "paris")

    def found(cluster: str) -> set[str]:
        page = store.reader.job_page(
            JobFilter(fields=(("cluster", cluster),)),
            start=NOW - timedelta(days=1),
            end=NOW,
            running_since=NOW - timedelta(hours=1),
            order="name",
            most=1_000,
        )
        return {used.job.job_id for used in page.rows}

    assert {f"{job}@paris" for job in found(MAIN_CLUSTER)} == found("paris")
    assert len(found("paris")) > 5


def test_a_job_is_submitted_to_the_main_cluster_alone(twins: tuple[CycleOutcome, Store]) -> None:
    """The nodes of others are no room for it."""
    _outcome, store = twins
    nodes = fleet_of_store(store.reader, load_gpu_catalogue()).nodes
    assert nodes
    assert {cluster_in(node.name) for node in nodes} == {""}
