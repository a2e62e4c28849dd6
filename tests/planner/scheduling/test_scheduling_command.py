"""`python -m benchmarks.simulation` from options to rows."""

import json
from pathlib import Path

import pytest

from benchmarks.simulation.command import cluster_of, options_of, scheduling
from benchmarks.simulation.outcome import FinishedJob, SimulationOutcome
from benchmarks.simulation.scheduling_rows import comparison
from data.base.errors import ImpossibleProblemError

CLUSTER = ["--cluster", "A100-SXM4-40GB:1x8,T4-16GB:2x4"]
SMALL = [*CLUSTER, "--policies", "first-in,has"]


def run(*arguments: str) -> int:
    """The command with its options."""
    return scheduling(options_of(["--quiet", *arguments]))


def test_a_made_workload_gives_one_row_for_every_policy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As JSON, with nothing else on stdout."""
    assert run(*SMALL, "--jobs", "2", "--hours", "0.2", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in rows] == ["first-in", "has"]
    assert all(row["jobs"] == 6 and row["jct_mean_h"] > 0 for row in rows)


def test_several_seeds_give_means_and_their_spread(capsys: pytest.CaptureFixture[str]) -> None:
    """The row of two seeds is the mean of the rows of each alone; alone there is no spread."""

    def made(*arguments: str) -> dict[str, float]:
        words = ["--policies", "first-in", "--jobs", "5", "--hours", "0.2", "--format", "json"]
        assert run(*CLUSTER, *words, *arguments) == 0
        row: dict[str, float] = json.loads(capsys.readouterr().out)[0]
        return row

    both, first, second = (
        made("--seed", seed, "--seeds", seeds)
        for seed, seeds in (("3", "2"), ("3", "1"), ("4", "1"))
    )
    means = [first["jct_mean_h"], second["jct_mean_h"]]
    assert means[0] != means[1]
    assert both["jct_mean_h"] == pytest.approx(sum(means) / 2)
    assert both["jct_mean_sd_h"] == pytest.approx(abs(means[0] - means[1]) / 2**0.5)
    assert both["jobs"] == 10
    assert first["jct_mean_sd_h"] is None


def outcome(hours: float, *, restarts: int = 0, lost: float = 0.0) -> SimulationOutcome:
    """One job that was submitted at 0, waited a tenth of the time, and held one GPU."""
    seconds = hours * 3600
    job = FinishedJob(
        name="a",
        application="b",
        submitted_at=0.0,
        started_at=seconds / 10,
        finished_at=seconds,
        gpu_seconds=seconds,
        wasted_gpu_seconds=lost * seconds,
        restarts=restarts,
        out_of_memory=0,
    )
    return SimulationOutcome(jobs=(job,), decision_seconds=(0.001,))


def test_the_comparison_names_the_best_other_policy_and_where_it_is_ahead() -> None:
    """Means over workloads, how many were lost, and what each policy does to a job."""
    text = comparison(
        {
            "gavel": [outcome(9.0), outcome(9.0)],
            "sia": [outcome(2.0, restarts=4, lost=0.25), outcome(4.0, restarts=4, lost=0.25)],
            "has": [outcome(1.0, restarts=1), outcome(4.4, restarts=1)],
        }
    )
    assert "has beside sia, the best of the others: mean completion time -10.0%" in text
    assert "(longer on 1 of 2 workloads)" in text
    assert "waits 16.2 min" in text
    assert "loses 25% of them to restarts and starts again 4 times" in text


@pytest.mark.parametrize("policies", [("has",), ("sia",), ("sia", "gavel"), ()])
def test_there_is_no_comparison_without_has_and_a_peer(policies: tuple[str, ...]) -> None:
    """Nothing to compare, nothing said."""
    assert comparison({name: [outcome(1.0)] for name in policies}) == ""


@pytest.mark.parametrize("seeds", ["0", "-1", "101"])
def test_a_number_of_seeds_without_sense_is_refused(seeds: str) -> None:
    """By its value."""
    with pytest.raises(ImpossibleProblemError, match=f"{seeds} made workloads"):
        run(*SMALL, "--seeds", seeds)


def test_a_workload_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the columns of Sia's workloads."""
    path = tmp_path / "w.csv"
    path.write_text("name,time,application,num_replicas,batch_size\na-1,5,small_image,2,512\n")
    assert run(*SMALL, str(path), "--format", "csv") == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("first-in,1,")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,time\na,1\n", "application"),
        ("name,time,application,num_replicas,batch_size\na,soon,small_image,2,512\n", "line 2"),
        ("name,time,application,num_replicas,batch_size\na,1,small_image,0,512\n", "0 GPUs"),
    ],
)
def test_a_broken_workload_is_refused_by_line_or_column(
    tmp_path: Path, text: str, said: str
) -> None:
    """Missing columns, words for numbers, no GPUs."""
    path = tmp_path / "w.csv"
    path.write_text(text)
    with pytest.raises(ImpossibleProblemError, match=said):
        run(*SMALL, str(path))


@pytest.mark.parametrize("spec", ["T4-16GB", "T4-16GB:0x4", "T4-16GB:1x4,T4-16GB:1x4", ""])
def test_a_broken_cluster_is_refused(spec: str) -> None:
    """What cannot be read, is empty, or names a type twice."""
    with pytest.raises(ImpossibleProblemError):
        cluster_of(spec)


def test_an_unknown_gpu_needs_profiles() -> None:
    """Its speed is not invented."""
    with pytest.raises(ImpossibleProblemError, match="speed of TPU"):
        run("scheduling", "--cluster", "TPU:1x4")
