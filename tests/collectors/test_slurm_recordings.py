"""The same story, recorded from two releases, reads the same through commands and slurmrestd."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from beds.slurm_replay import RECORDED, RELEASES, answering, recorded_commands, recorded_rest

from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import Job, JobState
from data.settings.sources import SlurmSettings

TOKEN = "signed"  # noqa: S105 - the recordings ask for none
MODELS = "h100=H100-SXM5-80GB,a100=A100-SXM4-80GB"


def window_of(release: str) -> Window:
    """The hour that ends a quarter of a minute after the last submission."""
    jobs = json.loads((RECORDED / release / "squeue.json").read_text())["jobs"]
    times = [job["submit_time"] for job in jobs]
    last = max(time["number"] if isinstance(time, dict) else time for time in times)
    end = datetime.fromtimestamp(last + 15, tz=UTC)
    return Window(start=end - timedelta(hours=1), end=end)


@pytest.fixture(scope="module", params=[(a, b) for a in RELEASES for b in ("commands", "rest")])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """What a collector gives of one release by one way of asking."""
    release, mode = request.param
    with ExitStack() as stack:
        if mode == "commands":
            folder = recorded_commands(tmp_path_factory.mktemp("bin") / "bin", release)
            settings = SlurmSettings(mode=mode, bin_directory=str(folder), gpu_models=MODELS)
        else:
            url = stack.enter_context(answering(recorded_rest(release)))
            settings = SlurmSettings(
                mode=mode, rest_url=url, rest_user="u", rest_token=TOKEN, gpu_models=MODELS
            )
        return slurm_collector(settings, load_gpu_catalogue()).collect(window_of(release))


def by_name(told: Collected) -> dict[str, Job]:
    """Jobs by name and workload's task."""
    return {
        job.name + (job.scheduler.workload.lstrip("0123456789") if job.scheduler else ""): job
        for job in told.jobs
    }


def test_every_job_with_gpus_is_there_with_its_state(told: Collected) -> None:
    """State, GPUs in total and model; the job without GPUs is counted."""
    found = {
        name: (job.scheduler.state if job.scheduler else None, job.gpu_count, job.gpu_model)
        for name, job in by_name(told).items()
    }
    h100, a100 = "H100-SXM5-80GB", "A100-SXM4-80GB"
    assert found == {
        "two|nodes": (JobState.RUNNING, 4, h100),
        "sweep_0": (JobState.RUNNING, 1, h100),
        "sweep_[1-3%1]": (JobState.PENDING, 1, h100),
        "untyped": (JobState.RUNNING, 2, a100),
        "again": (JobState.RUNNING, 1, h100),
        "short": (JobState.FINISHED, 1, h100),
        "cancelled": (JobState.CANCELLED, 12, h100),
        "waiting": (JobState.PENDING, 12, h100),
        "paused": (JobState.SUSPENDED, 1, h100),
        "het+0": (JobState.PENDING, 1, h100),
        "het+1": (JobState.PENDING, 1, a100),
    }
    assert dict(told.report.dropped) == {"no-gpu": 1, "node-without-gpu": 1}
    assert told.report.warnings == ()


def test_the_schedulers_facts_are_kept(told: Collected) -> None:
    """Limits in seconds, why it waits, restarts, and the request in Slurm's own spelling."""
    jobs = by_name(told)
    two, waiting, again = (jobs[name].scheduler for name in ("two|nodes", "waiting", "again"))
    assert two is not None
    assert (two.time_limit_seconds, two.nodes) == (7200.0, ("h100-01",))
    assert (two.account, two.qos, two.reason) == ("root", "normal", "")
    assert waiting is not None
    assert (waiting.reason, waiting.started_at) == ("Resources", None)
    assert dict(waiting.extra)["gres"] in ("gres:gpu:h100:4", "gres/gpu:h100:4")
    assert dict(waiting.extra)["requested_gpu_type"] == "h100"
    assert dict(waiting.extra)["nodes_requested"] == "3"
    assert again is not None
    assert dict(again.extra)["restarts"] == "1"
    assert jobs["untyped"].assumed == (("gpu_model", "A100-SXM4-80GB: slurm.gpu_models for a100"),)
    assert jobs["waiting"].first_seen_at == jobs["waiting"].last_seen_at == told.report.window_end


def test_allocations_say_who_held_what_when(told: Collected) -> None:
    """Indices while a job runs, counts of what has ended; stretches of a job never overlap."""
    names = {text.job_id: name for name, text in by_name(told).items()}
    rows = [
        (names[row.job_id], row.node, row.gpu_index, row.gpu_count, str(row.ended_at) == "NaT")
        for row in told.allocations.itertuples()
    ]
    assert sorted(rows) == sorted(
        [
            *[("two|nodes", "h100-01", str(index), 1.0, True) for index in range(4)],
            ("two|nodes", "h100-01", "", 4.0, False),
            ("two|nodes", "h100-02", "", 4.0, False),
            ("sweep_0", "h100-05", "0", 1.0, True),
            ("untyped", "a100-01", "0", 1.0, True),
            ("untyped", "a100-01", "1", 1.0, True),
            ("again", "h100-05", "", 1.0, False),
            ("again", "h100-05", "1", 1.0, True),
            ("short", "h100-05", "", 1.0, False),
            ("paused", "h100-05", "3", 1.0, True),
        ]
    )
    for _holder, stretches in told.allocations.groupby(["job_id", "node"]):
        ended = stretches["ended_at"].dropna()
        going = stretches[stretches["ended_at"].isna()]
        if len(ended) and len(going):
            assert going["started_at"].min() >= ended.max()
    assert (told.allocations["label_id"] == told.allocations["job_id"]).all()


def test_nodes_with_gpus_are_there(told: Collected) -> None:
    """Boards, CPUs, memory, partition and features."""
    nodes = {node.name: node for node in told.nodes}
    assert {name: node.gpu_count for name, node in nodes.items()} == {
        "h100-01": 4,
        "h100-02": 4,
        "h100-05": 4,
        "a100-01": 2,
    }
    h100 = nodes["h100-01"]
    assert (h100.gpu_model, h100.cpus, h100.memory_mib) == ("H100-SXM5-80GB", 32, 256_000.0)
    assert (h100.partitions, h100.features) == (("gpu",), ("h100", "nvlink"))
    assert h100.schedulable


def test_the_same_answers_give_the_same_batch(tmp_path: Path) -> None:
    """Keeping a window twice is harmless; another window is another batch."""
    folder = recorded_commands(tmp_path / "bin", "22.05")
    settings = SlurmSettings(mode="commands", bin_directory=str(folder))
    collector = slurm_collector(settings, load_gpu_catalogue())
    window = window_of("22.05")
    later = Window(start=window.start, end=window.end + timedelta(minutes=1))
    ids = [collector.collect(entry).batch_id for entry in (window, window, later)]
    assert ids[0] == ids[1] != ids[2]


def test_unmapped_types_stay_slurms_words(tmp_path: Path) -> None:
    """Without a map nothing is assumed: the model is the gres type."""
    folder = recorded_commands(tmp_path / "bin", "24.11")
    settings = SlurmSettings(mode="commands", bin_directory=str(folder))
    told = slurm_collector(settings, load_gpu_catalogue()).collect(window_of("24.11"))
    assert {job.gpu_model for job in told.jobs} == {"h100", "a100"}
    assert {job.assumed for job in told.jobs} == {()}
