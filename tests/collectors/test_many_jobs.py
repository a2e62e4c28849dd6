"""Jobs that telemetry names: as many as a large cluster starts in an hour, in bounded time."""

import time

import numpy as np
import pandas as pd
import pytest

from collectors.readings.dcgm_readings import jobs_of
from data.facts.columns import SAMPLES, check_frame

START = pd.Timestamp("2026-01-05T12:00Z").as_unit("us")


def pods(count: int) -> pd.DataFrame:
    """Two samples of as many pods as asked for."""
    ids = [f"team-{number % 50}/pod-{number}" for number in range(count)]
    boards = [f"GPU-{number % 4000}" for number in range(count)]
    steps = [
        pd.DataFrame(
            {
                "sampled_at": START + pd.Timedelta(minutes=step),
                "gpu_uuid": boards,
                "node": "n1",
                "gpu_model": "H100-SXM5-80GB",
                "job_id": ids,
            }
        )
        for step in range(2)
    ]
    return check_frame(pd.concat(steps, ignore_index=True), SAMPLES)


def test_jobs_cost_no_frame_operation_each() -> None:
    """A hundred times the pods cost less than twenty times a loop over frames.

    Both are CPU time of this process, so that a busy machine changes nothing.
    """
    many, few = pods(20_000), pods(200)
    began = time.process_time()
    assert len(jobs_of(many, "p")) == 20_000
    batched = time.process_time() - began
    began = time.process_time()
    for _name, rows in few.groupby("job_id"):
        rows[rows["sampled_at"] == rows["sampled_at"].max()].drop_duplicates()
    single = time.process_time() - began
    assert batched < 20 * single, "a hundred times the pods must not cost a hundred times as much"


@pytest.mark.parametrize(("seconds", "boards"), [(0, 2), (60, 2), (600, 2), (1700, 2), (3600, 1)])
def test_boards_that_are_read_a_little_apart_are_held_together(seconds: int, boards: int) -> None:
    """Clocks and scrapes differ by seconds; what was last read an hour before is not held now."""
    later = pods(1).assign(gpu_uuid="GPU-b")
    later["sampled_at"] = later["sampled_at"] + pd.Timedelta(seconds=seconds)
    long = [pods(1).assign(sampled_at=START + pd.Timedelta(hours=at)) for at in (-9, 0)]
    rows = [*long, later.assign(sampled_at=START - pd.Timedelta(hours=8)), later]
    (job,) = jobs_of(check_frame(pd.concat(rows, ignore_index=True), SAMPLES), "p")
    assert job.gpu_count == boards


def test_a_board_in_the_place_of_another_is_one() -> None:
    """What was last read before the other was first read is not held beside it."""
    before, after = pods(1), pods(1).assign(gpu_uuid="GPU-b")
    after["sampled_at"] = after["sampled_at"] + pd.Timedelta(minutes=5)
    (job,) = jobs_of(check_frame(pd.concat([before, after], ignore_index=True), SAMPLES), "p")
    assert job.gpu_count == 1


@pytest.mark.parametrize("seed", range(30))
def test_what_a_job_holds_is_what_its_newest_samples_say(seed: int) -> None:
    """Every fact of a job equals a plain reading of its rows."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    minutes = pd.to_timedelta(rng.integers(0, 4, count), unit="min")
    frame = pd.DataFrame(
        {
            "sampled_at": START + minutes,
            "gpu_uuid": rng.choice(["a", "b", "c"], count),
            "mig_instance": rng.choice(["", "1"], count),
            "node": "n1",
            "gpu_model": rng.choice(["H100-SXM5-80GB", ""], count),
            "job_id": rng.choice(["", "team/pod", "slurm:12", "odd", "a/b/c"], count),
            "memory_total_mib": rng.choice([81920.0, np.nan], count),
        }
    )
    rows = check_frame(frame, SAMPLES).to_dict("records")
    found = {job.job_id: job for job in jobs_of(check_frame(frame, SAMPLES), "p")}
    assert set(found) == {row["job_id"] for row in rows} - {""}
    for job_id, job in found.items():
        own = [row for row in rows if row["job_id"] == job_id]
        times = [row["sampled_at"] for row in own]
        newest = [row for row in own if row["sampled_at"] == max(times)]
        assert (job.first_seen_at, job.last_seen_at) == (min(times), max(times))
        read_at: dict[tuple[str, str], list[pd.Timestamp]] = {}
        for row in own:
            read_at.setdefault((row["gpu_uuid"], row["mig_instance"]), []).append(row["sampled_at"])
        started = max(min(at) for at in read_at.values())
        assert job.gpu_count == sum(max(at) >= started for at in read_at.values())
        assert job.gpu_model == newest[0]["gpu_model"]
        memory = newest[0]["memory_total_mib"]
        assert job.gpu_memory_mib == (None if np.isnan(memory) else memory)
        assert job.namespace == ("" if job_id.startswith("slurm:") else job_id.partition("/")[0])
