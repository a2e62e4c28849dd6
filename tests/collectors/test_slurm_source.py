"""A real Slurm: what was submitted is what the collector tells, by commands and by slurmrestd."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode

from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector, slurm_findings
from data.base.clock import utc_now
from data.base.errors import SourceRefusedError, SourceUnreachableError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import JobState, Platform
from data.settings.sources import SlurmSettings

pytestmark = pytest.mark.slurm
ONE_NODE = (BedNode(name="g1", gpu_type="h100", gpus=2, features="x"), BedNode(name="c1"))


def settings_of(bed: SlurmBed, mode: str = "commands") -> SlurmSettings:
    """Settings for a bed."""
    return SlurmSettings(
        mode=mode,
        conf_file=str(bed.conf),
        rest_url=bed.rest_url,
        rest_user=bed.plan.user,
        rest_token=bed.token() if mode == "rest" else "",
        gpu_models="h100=H100-SXM5-80GB",
    )


def collected_from(settings: SlurmSettings) -> Collected:
    """What the collector tells of the last hour."""
    now = utc_now() + timedelta(seconds=1)
    window = Window(start=now - timedelta(hours=1), end=now)
    return slurm_collector(settings, load_gpu_catalogue()).collect(window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A cluster with jobs in every state, and their raw ids."""

    bed: SlurmBed
    two_nodes: str
    array: str
    requeued: str
    stopped: str
    waiting: str
    cpu_only: str

    @property
    def first_task(self) -> str:
        """Raw id of the array's task that runs."""
        return self.bed.run("squeue", "-h", "-t", "R", "-j", self.array, "-o", "%A")


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    """Submitted once: nothing in these tests changes it."""
    with running_slurm(accounting=True, rest=True) as bed:
        two = bed.submit("-N2", "--gres=gpu:h100:2", "-J", "two", "-t", "90", "-C", "nvlink")
        array = bed.submit("--array=3-5%1", "--gres=gpu:a100:1", "-J", "sweep")
        requeued = bed.submit("--gres=gpu:h100:1", "-J", "again", "--requeue")
        stopped = bed.submit("--gres=gpu:h100:3", "-J", "stopped")
        bed.until(
            "jobs run",
            lambda: {bed.states().get(name) for name in (two, requeued, stopped)} == {"RUNNING"},
        )
        bed.run("scontrol", "requeue", requeued)
        bed.run("scancel", stopped)
        waiting = bed.submit("-N3", "--gres=gpu:h100:4", "-J", "waiting", "--nice=100")
        cpu_only = bed.submit("-p", "cpu", "-J", "no-gpus")
        bed.until("it runs again", lambda: bed.states().get(requeued) == "RUNNING")
        bed.until(
            "it waits for GPUs",
            lambda: bed.run("squeue", "-h", "-j", waiting, "-o", "%r") == "Resources",
        )
        bed.until("prologs have written", lambda: len(bed.mapping()) == 6)
        yield Story(
            bed=bed,
            two_nodes=two,
            array=array,
            requeued=requeued,
            stopped=stopped,
            waiting=waiting,
            cpu_only=cpu_only,
        )


@pytest.fixture(scope="module", params=["commands", "rest"])
def told(request: pytest.FixtureRequest, story: Story) -> Collected:
    """What is told of the story, by one way of asking."""
    return collected_from(settings_of(story.bed, request.param))


def test_jobs_are_those_submitted(told: Collected, story: Story) -> None:
    """Every job with GPUs once, with its state, GPUs in total and place in an array."""
    facts = {job.job_id.removeprefix("slurm:"): job for job in told.jobs}
    found = {
        raw: (fact.scheduler.state, fact.gpu_count, fact.scheduler.workload, fact.name)
        for raw, fact in facts.items()
        if fact.scheduler is not None
    }
    assert found == {
        story.two_nodes: (JobState.RUNNING, 4, story.two_nodes, "two"),
        story.array: (JobState.PENDING, 1, f"{story.array}_[4-5%1]", "sweep"),
        story.first_task: (JobState.RUNNING, 1, f"{story.array}_3", "sweep"),
        story.requeued: (JobState.RUNNING, 1, story.requeued, "again"),
        story.stopped: (JobState.CANCELLED, 3, story.stopped, "stopped"),
        story.waiting: (JobState.PENDING, 12, story.waiting, "waiting"),
    }
    assert {job.owner for job in told.jobs} == {story.bed.plan.user}
    assert {(job.platform, job.namespace) for job in told.jobs} == {(Platform.SLURM, "gpu")}
    assert dict(told.report.dropped) == {"no-gpu": 1, "node-without-gpu": 1}
    (warning,) = told.report.warnings
    assert warning.startswith("1 node (a100-01) with gres/gpu:a100: its model is not known")
    assert told.report.completeness_ratio == 1.0


def test_facts_of_the_scheduler_are_those_submitted(told: Collected, story: Story) -> None:
    """Limit, features, nodes, restarts, and why a job waits."""
    facts = {job.job_id.removeprefix("slurm:"): job.scheduler for job in told.jobs}
    two, waiting, again = (
        facts[nodes] for nodes in (story.two_nodes, story.waiting, story.requeued)
    )
    assert two is not None
    assert (two.time_limit_seconds, len(two.nodes)) == (5400.0, 2)
    assert {name: value for name, value in two.extra if name in ("features", "gres_per")} == {
        "features": "nvlink",
        "gres_per": "node",
    }
    assert waiting is not None
    assert waiting.reason == "Resources"
    assert again is not None
    assert dict(again.extra)["restarts"] == "1"
    models = {job.name: (job.gpu_model, job.assumed) for job in told.jobs}
    assert models["sweep"] == ("a100", ())
    assert models["two"][0] == "H100-SXM5-80GB"
    assert models["two"][1][0][0] == "gpu_model"


def test_held_gpus_are_those_that_prologs_wrote(told: Collected, story: Story) -> None:
    """Slurm's indices name the mapping files in which prologs put the job's id."""
    held = told.allocations[told.allocations["ended_at"].isna()]
    found = {
        f"{row.node}/{row.gpu_index}": str(row.label_id).removeprefix("slurm:")
        for row in held.itertuples()
    }
    assert found == story.bed.mapping()
    jobstats = story.bed.mapping("gpustat")
    assert {gpu: text.split()[0] for gpu, text in jobstats.items()} == found
    assert (held["gpu_count"] == 1).all()


def test_the_past_is_there_stretch_by_stretch(told: Collected, story: Story) -> None:
    """The requeued job's first run and the stopped job, with their ends; nothing twice."""
    past = told.allocations[told.allocations["ended_at"].notna()]
    found = {row.job_id: (row.gpu_count, row.gpu_index) for row in past.itertuples()}
    assert found == {f"slurm:{story.requeued}": (1, ""), f"slurm:{story.stopped}": (3, "")}
    assert len(past) == 2
    assert (past["ended_at"] >= past["started_at"]).all()
    again = told.allocations[told.allocations["job_id"] == f"slurm:{story.requeued}"]
    first, second = again.sort_values("started_at").itertuples()
    assert second.started_at >= first.ended_at


def test_both_ways_tell_the_same(story: Story) -> None:
    """Jobs, nodes and allocations are equal but for the name of the source."""
    ways = [collected_from(settings_of(story.bed, mode)) for mode in ("commands", "rest")]
    at = ways[0].report.window_end
    assert at is not None

    def plain(told: Collected) -> tuple[object, pd.DataFrame]:
        jobs = [replace(job, source="", first_seen_at=at, last_seen_at=at) for job in told.jobs]
        nodes = [replace(node, source="", seen_at=at) for node in told.nodes]
        rows = told.allocations.drop(columns=["source", "seen_at"])
        key = ["job_id", "node", "gpu_index", "started_at"]
        return (jobs, nodes), rows.sort_values(key).reset_index(drop=True)

    (records, rows), (other_records, other_rows) = map(plain, ways)
    assert records == other_records
    pd.testing.assert_frame_equal(rows, other_rows)


def test_a_persons_environment_changes_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option of Slurm's commands can be set by a variable; none reaches them."""
    before = collected_from(settings_of(story.bed)).allocations
    for name, value in {
        "TZ": "Asia/Tokyo",
        "SLURM_TIME_FORMAT": "relative",
        "SACCT_FORMAT": "JobID",
        "SQUEUE_STATES": "PENDING",
        "SLURM_CLUSTERS": "elsewhere",
    }.items():
        monkeypatch.setenv(name, value)
    after = collected_from(settings_of(story.bed)).allocations
    pd.testing.assert_frame_equal(before.drop(columns="seen_at"), after.drop(columns="seen_at"))


def test_a_complete_cluster_lacks_nothing(story: Story) -> None:
    """Every finding is ok, by both ways."""
    for mode in ("commands", "rest"):
        settings = settings_of(story.bed, mode)
        models = f"{settings.gpu_models},a100=A100-SXM4-80GB"
        findings = slurm_findings(replace(settings, gpu_models=models))
        assert findings
        assert [finding for finding in findings if finding[1] != "ok"] == []


def test_a_bad_token_is_refused(story: Story) -> None:
    """By the real slurmrestd, with the way to a new one."""
    settings = replace(settings_of(story.bed, "rest"), rest_token="eyJ.eyJ.x")  # noqa: S106
    with pytest.raises(SourceRefusedError, match="scontrol token"):
        collected_from(settings)


def test_without_accounting_and_then_without_controller() -> None:
    """GPUs are counted from the request; what is over is told as long as the controller knows."""
    with running_slurm(nodes=ONE_NODE, further="MessageTimeout=2") as bed:
        running = bed.submit("--gres=gpu:h100:1")
        over = bed.submit("--gpus=1", seconds=0)
        bed.until("one runs", lambda: bed.states().get(running) == "RUNNING")
        bed.until("one is over", lambda: bed.states().get(over) == "COMPLETED")
        waiting = bed.submit("--gres=gpu:h100:2")
        bed.until("its epilog is over", lambda: len(bed.mapping()) == 1)
        bed.until("one waits", lambda: bed.states().get(waiting) == "PENDING")
        told = collected_from(settings_of(bed))
        states = {job.job_id: (job.scheduler.state, job.gpu_count) for job in told.jobs
                  if job.scheduler}  # fmt: skip
        assert states == {
            f"slurm:{running}": (JobState.RUNNING, 1),
            f"slurm:{over}": (JobState.FINISHED, 1),
            f"slurm:{waiting}": (JobState.PENDING, 2),
        }
        rows = {
            f"{row.node}/{row.gpu_index}": (row.job_id, pd.isna(row.ended_at))
            for row in told.allocations.itertuples()
        }
        (held,) = bed.mapping()
        assert rows == {
            held: (f"slurm:{running}", True),
            "g1/": (f"slurm:{over}", False),
        }
        (warning,) = told.report.warnings
        assert warning.startswith("finished jobs are not visible")
        assert "AccountingStorageType" in warning
        missing = [what for what, state, _detail in slurm_findings(settings_of(bed))
                   if state == "missing"]  # fmt: skip
        assert missing == ["slurm accounting"]

        bed.run("scancel", running, waiting)
        bed.until("all is over", lambda: not bed.run("squeue", "-h"))
        bed.end("slurmctld")
        with pytest.raises(SourceUnreachableError, match="scontrol"):
            collected_from(settings_of(bed))
        assert slurm_findings(settings_of(bed))[-1][:2] == ("slurm controller", "missing")


def test_signs_of_checkpoints_are_those_submitted(tmp_path: Path) -> None:
    """By submit line, script or comment; that a job may be requeued is none, on any release."""
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n#SBATCH --signal=B:USR1@120\nsleep 600\n")
    script.chmod(0o755)
    gpu, written = "--gres=gpu:h100:1", "trimtab/checkpoint-at=2026-01-05T12:00:00Z"
    nodes = (BedNode(name="g1", gpu_type="h100", gpus=8, features="x"), BedNode(name="c1"))
    with running_slurm(nodes=nodes, accounting=True, rest=True) as bed:
        plain = bed.submit(gpu, "--requeue")
        signal = bed.submit(gpu, "--requeue", "--signal=USR1@60")
        append = bed.submit(gpu, "--open-mode=append")
        stated = bed.submit(gpu, f"--comment={written}")
        by_script = bed.run("sbatch", "--parsable", "--output=/dev/null", gpu, str(script))
        jobs = (plain, signal, append, stated, by_script)
        bed.until("they run", lambda: {bed.states().get(job) for job in jobs} == {"RUNNING"})
        line = ("sacct", "-n", "-X", "-P", "-o", "SubmitLine", "-j", ",".join(jobs))
        bed.until(
            "accounting has them",
            lambda: len(bed.run(*line, check=False).splitlines()) == len(jobs),
        )
        told = facts_by_job(collected_from(settings_of(bed)))
        by_rest = facts_by_job(collected_from(settings_of(bed, "rest")))
    signs = {job: told[job].get("checkpoints", "") for job in jobs}
    assert signs == {
        plain: "",
        signal: "its --signal",
        append: "its --open-mode=append",
        stated: "",
        by_script: "its --signal",
    }
    assert told[stated]["checkpoint_at"] == "2026-01-05T12:00:00+00:00"
    assert told[plain]["requeue"] == "yes"
    # slurmrestd has no scripts, and tells submit lines in later releases alone.
    with_lines = bed.plan.version >= (23, 11)
    assert by_rest[signal].get("checkpoints", "") == ("its --signal" if with_lines else "")
    assert "checkpoints" not in by_rest[plain]


def facts_by_job(collected: Collected) -> dict[str, dict[str, str]]:
    """The facts of every job by its number."""
    return {
        job.job_id.removeprefix("slurm:"): dict(job.scheduler.extra)
        for job in collected.jobs
        if job.scheduler is not None
    }
