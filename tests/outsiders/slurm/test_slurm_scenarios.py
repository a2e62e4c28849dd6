"""Drawn jobs, changes and accidents on a real Slurm: promises hold, and nothing else moves."""

import logging
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode
from outsiders.campaign import run_campaign, scenario_count, source_of
from outsiders.slurm.scenario import SlurmScenario, draw
from outsiders.slurm.trial import Trial
from reliability import Measured

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
NAME = "slurm"
DEFAULT = 4
AT_ONCE = 6
TWO_NODES = SlurmScenario(gpus=2, nodes="2", start="runs", wanted=1)
KNOWN = (
    TWO_NODES,
    replace(TWO_NODES, at=2, meanwhile="partition"),
    replace(TWO_NODES, at=3, dies="before"),
    replace(TWO_NODES, at=0, dies="told"),
    replace(TWO_NODES, at=2, dies="told"),
    replace(TWO_NODES, at=2, outage="stop"),
    replace(TWO_NODES, nodes="3", start="waits", wanted=2, meanwhile="nodes"),
    replace(TWO_NODES, gpus=3, nodes="3", wanted=6),
)
"""A job on two nodes was left held, and rolled back to half its size; others set what we set."""
OPEN = tuple(f"o{number}" for number in range(1, 11))
FULL = ("f1", "f2", "f3")


def node(name: str) -> BedNode:
    """Return a node of eight H100."""
    return BedNode(name=name, gpu_type="h100", gpus=8, cpus=64, features="nvlink,h100")


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """A cluster with room in one partition and none in the other two."""
    nodes = (*map(node, (*OPEN, *FULL)), BedNode(name="c1"))
    further = "\n".join(
        [
            f"PartitionName=open Nodes={','.join(OPEN)} MaxTime=1-00:00:00 State=UP",
            f"PartitionName=full Nodes={','.join(FULL)} MaxTime=1-00:00:00 State=UP",
            f"PartitionName=other Nodes={','.join(FULL)} MaxTime=1-00:00:00 State=UP",
        ]
    )
    with running_slurm(nodes=nodes, accounting=True, rest=True, further=further) as cluster:
        cluster.run("sacctmgr", "-i", "add", "qos", "small")
        cluster.run(
            "scontrol", "create", "reservation", "ReservationName=trial", "StartTime=now",
            "Duration=UNLIMITED", "Nodes=o9,o10", f"Users={cluster.plan.user}",
        )  # fmt: skip
        filler = cluster.submit("-pfull", "-N3", "--gres=gpu:h100:8", "--exclusive", seconds=36000)
        cluster.until("nodes are full", lambda: cluster.states().get(filler) == "RUNNING")
        yield cluster


def test_what_was_promised_to_any_job_holds(
    bed: SlurmBed, measured: Measured, caplog: pytest.LogCaptureFixture
) -> None:
    """After applied only promised fields differ, after refused none, after rolled back none."""
    caplog.set_level(logging.WARNING)  # what broke comes with the journal that led there
    blocker = bed.submit("-H", "-pfull")
    outcomes: Counter[str] = Counter()

    def result(scenario: SlurmScenario) -> str | None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            trial = Trial(bed=bed, scenario=scenario, folder=Path(folder), blocker=blocker)
            try:
                return trial.run()
            except Exception as error:  # noqa: BLE001 a scenario that crashes is a finding
                return f"{type(error).__name__}: {error}"
            finally:
                outcomes[trial.outcome] += 1

    broken = [found for scenario in KNOWN if (found := result(scenario))]
    print_counts(outcomes)
    assert not broken, "\n".join(broken)
    tried = [outcome for outcome in outcomes if "applied" in outcome]
    assert len(tried) == len(outcomes), bed.log("slurmctld")
    count = scenario_count(DEFAULT)
    drawn = [draw(source_of(NAME, number)) for number in range(count)]
    # An outage strikes every job of the cluster: those scenarios run alone, after the others.
    calm = [scenario for scenario in drawn if not scenario.outage]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        known = list(zip(calm, pool.map(result, calm), strict=True))

    def fails(scenario: SlurmScenario) -> str | None:
        for index, (other, found) in enumerate(known):
            if other is scenario or other == scenario:
                del known[index]
                return found
        return result(scenario)

    try:
        run_campaign(NAME, draw, fails, default=DEFAULT, measured=measured)
    finally:
        print_counts(outcomes)


def print_counts(outcomes: Counter[str]) -> None:
    """Print how often each outcome came, which pytest shows with a failure."""
    for outcome, times in outcomes.most_common():
        print(f"{times:4} {outcome}")  # noqa: T201
