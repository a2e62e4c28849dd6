"""What a source of a further cluster tells is known by names that carry the cluster's."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from beds.kubernetes_replay import RECORDED as KUBERNETES
from beds.kubernetes_replay import recorded_collector
from beds.slurm_replay import RECORDED as SLURM
from beds.slurm_replay import recorded_commands
from factories import make_collected, make_samples

from collectors.readings.device_labels import holder_of, node_of
from collectors.shared.collect import collect_all
from collectors.shared.collector import Collector, Window
from collectors.shared.multi_cluster import InCluster
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from collectors.slurm.jobs import SOURCE as SLURM_SOURCE
from data.base.errors import SourceUnreachableError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.cluster_names import cluster_in
from data.facts.collected import Collected
from data.facts.fleet import SourceState
from data.facts.jobs import Platform
from data.settings.all_settings import Settings
from data.settings.sources import SlurmSettings

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
WINDOW = Window(start=NOW - timedelta(hours=1), end=NOW)
NAMES = {"node", "job_id", "label_id", "source", "gpu_uuid", "address"}
FRAMES = ("samples", "allocations", "xids", "serving", "activity", "progress")


@dataclass(frozen=True, kw_only=True)
class Deaf:
    """A source that does not answer."""

    name: str = "slurm"

    def collect(self, _window: Window) -> Collected:
        """Fail."""
        raise SourceUnreachableError("nothing answers", "Start it.")


@pytest.fixture(scope="module", params=["simulated", "kubernetes", "slurm"])
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collector]:
    """A source with every kind of fact: the simulated fleet, and schedulers as recorded."""
    folder = tmp_path_factory.mktemp("source")
    if request.param == "simulated":
        yield SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=4), step_seconds=60)
    elif request.param == "kubernetes":
        newest = max(path for path in KUBERNETES.iterdir() if path.is_dir())
        with recorded_collector(newest, folder) as collector:
            yield collector
    else:
        newest = max(path for path in SLURM.iterdir() if path.is_dir())
        commands = recorded_commands(folder, newest.name)
        settings = Settings(slurm=SlurmSettings(mode="commands", bin_directory=str(commands)))
        yield SLURM_SOURCE.build(settings, load_gpu_catalogue())


def names_in(found: Collected) -> set[str]:
    """Every name of a node, job, pod or source that reaches the store."""
    names = {found.report.source}
    for name in FRAMES:
        frame: pd.DataFrame = getattr(found, name)
        for column in NAMES.intersection(frame.columns):
            names |= set(frame[column])
    for job in found.jobs:
        names |= {job.job_id, job.source, *(job.scheduler.nodes if job.scheduler else ())}
    for node in found.nodes:
        names |= {node.name, node.source}
    names |= {quota.source for quota in found.quotas or ()}
    # An address that is not known still tells its cluster.
    return {name for name in names - {"", "@paris"} if not name.startswith("GPU-")}


def test_every_name_is_of_the_cluster_and_nothing_else_changes(source: Collector) -> None:
    """The facts stay; what could be mixed up with another cluster's does not."""
    plain, named = (
        one.collect(WINDOW) for one in (source, InCluster(inner=source, cluster="paris"))
    )
    assert names_in(named) == {f"{name}@paris" for name in names_in(plain)}
    assert named.batch_id != plain.batch_id
    assert [node.platform for node in named.nodes] == [node.platform for node in plain.nodes]
    for name in FRAMES:
        one, other = getattr(plain, name), getattr(named, name)
        kept = [column for column in one if column not in NAMES]
        pd.testing.assert_frame_equal(one[kept], other[kept])
        assert list(one.dtypes) == list(other.dtypes)


def test_recorded_schedulers_keep_their_platform() -> None:
    """A Slurm by its commands is called `slurm` alone."""
    from data.facts.fleet import Node

    facts: dict[str, Any] = {"gpu_model": "", "gpu_count": 8, "seen_at": NOW}
    for word, platform in (("slurm@paris", Platform.SLURM), ("kubernetes a@b", "kubernetes")):
        assert Node(name="n1@paris", source=word, **facts).platform == platform


def test_boards_are_the_worlds_but_for_those_named_by_their_node() -> None:
    """A UUID is kept; what stands for one where an exporter names MIG instances alone is not."""
    frame = make_samples(gpus=2)
    frame["gpu_uuid"] = ["GPU-1", "node-1/gpu0"] * (len(frame) // 2)

    @dataclass(frozen=True, kw_only=True)
    class Told:
        name: str = "prometheus http://p"

        def collect(self, _window: Window) -> Collected:
            return make_collected(frame)

    found = InCluster(inner=Told(), cluster="paris").collect(WINDOW).samples
    assert set(found["gpu_uuid"]) == {"GPU-1", "node-1/gpu0@paris"}


def test_a_source_that_fails_is_reported_by_its_cluster() -> None:
    """Two Slurms: the report tells which, and the next collection starts where it left off."""
    reports = [
        found.report
        for found in collect_all(
            (Deaf(), InCluster(inner=Deaf(), cluster="paris")),
            WINDOW,
            since={"slurm@paris": NOW - timedelta(minutes=5)},
        )
    ]
    assert [report.source for report in reports] == ["slurm", "slurm@paris"]
    assert {report.state for report in reports} == {SourceState.FAILED}
    assert reports[1].window_start == NOW - timedelta(minutes=5)
    assert reports[0].window_start == WINDOW.start


@pytest.mark.parametrize(
    "labels",
    [
        {"pod": "ranker@paris", "namespace": "ml", "Hostname": "n1@paris"},
        {"hpc_job": "12@paris", "instance": "n1@paris:9400"},
        {"exported_pod": "x", "exported_namespace": "ml@paris", "node": "a@b@paris"},
    ],
)
def test_a_label_names_no_other_cluster(labels: dict[str, str]) -> None:
    """Whoever names a pod does not choose whose board it is."""
    assert cluster_in(holder_of(labels)) == cluster_in(node_of(labels)) == ""
    assert holder_of(labels)
    assert "paris" in node_of(labels) or "Hostname" not in labels
