"""A real Slurm: nodes that it needs for jobs that wait, or has promised, are told."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode

from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector
from data.base.clock import utc_now
from data.boards.unplanned_jobs import required_nodes_on
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import JobState
from data.settings.sources import SlurmSettings

pytestmark = pytest.mark.slurm
NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=2, features="nvlink"),
    BedNode(name="h2", gpu_type="h100", gpus=2, features="nvlink"),
    BedNode(name="a1", gpu_type="a100", gpus=2, features="a100"),
    BedNode(name="c1"),
)
H100, A100 = {"h1", "h2"}, {"a1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmBed]:
    """One cluster; each test ends its own jobs and reservations."""
    with running_slurm(nodes=NODES, accounting=True, rest=True) as bed:
        yield bed


@pytest.fixture
def bed(cluster: SlurmBed) -> Iterator[SlurmBed]:
    """The cluster, empty afterwards."""
    yield cluster
    cluster.run("scancel", "--quiet", "-u", cluster.plan.user)
    cluster.run("scontrol", "delete", "ReservationName=paper", check=False)
    cluster.until("no job is left", lambda: not cluster.run("squeue", "-h"))


def told(bed: SlurmBed, mode: str) -> set[str]:
    """The nodes that are kept on, with readings of every job that runs."""
    settings = SlurmSettings(
        mode=mode,
        conf_file=str(bed.conf),
        rest_url=bed.rest_url,
        rest_user=bed.plan.user,
        rest_token=bed.token() if mode == "rest" else "",
        gpu_models="h100=H100-SXM5-80GB,a100=A100-SXM4-80GB",
    )
    now = utc_now() + timedelta(seconds=1)
    window = Window(start=now - timedelta(hours=1), end=now)
    found = slurm_collector(settings, load_gpu_catalogue()).collect(window)
    assert found.report.warnings == ()
    running = {
        job.job_id
        for job in found.jobs
        if job.scheduler is not None and job.scheduler.state is JobState.RUNNING
    }
    return set(required_nodes_on(found.jobs, running, found.nodes))


@pytest.mark.parametrize("mode", ["commands", "rest"])
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--gres=gpu:h100:1"], H100),
        (["--gres=gpu:a100:2"], A100),
        (["--gres=gpu:1"], H100 | A100),
        (["--gpus=1", "--begin=now+1hour"], H100 | A100),
        (["--gres=gpu:h100:1", "--hold"], set()),
    ],
)
def test_a_job_that_waits_keeps_the_nodes_on_which_it_may_start(
    bed: SlurmBed, mode: str, options: list[str], kept: set[str]
) -> None:
    """Of its GPU type, where it names one; a job that somebody holds keeps none."""
    full = bed.submit("-N3", "--exclusive", "-w", "h1,h2,a1", "--gres=gpu:2")
    bed.until("the cluster is full", lambda: bed.states().get(full) == "RUNNING")
    # Its backfill scheduler forgets what it planned for jobs that are gone at its next run.
    bed.until("nothing is promised", lambda: told(bed, mode) == set())
    waits = bed.submit(*options)
    bed.until("it waits", lambda: bed.run("squeue", "-h", "-j", waits, "-o", "%r") != "None")
    assert told(bed, mode) == kept


@pytest.mark.parametrize("mode", ["commands", "rest"])
@pytest.mark.parametrize(("minutes", "kept"), [(18, True), (0, True), (3 * 24 * 60, False)])
def test_a_node_that_a_reservation_takes_soon_is_kept_on(
    bed: SlurmBed, mode: str, minutes: int, kept: bool
) -> None:
    """One that begins within a day, or has begun."""
    bed.until("nothing is promised", lambda: told(bed, mode) == set())
    starts = f"now+{minutes}minutes" if minutes else "now"
    bed.run(
        "scontrol", "create", "reservation", "ReservationName=paper", "Users=root",
        f"StartTime={starts}", "Duration=120", "Nodes=a1,h2",
    )  # fmt: skip
    assert told(bed, mode) == ({"a1", "h2"} if kept else set())
