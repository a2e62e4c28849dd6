"""`simulate scheduling` from options to rows."""

import argparse
import json
from pathlib import Path

import pytest

from dashboard.cli.scheduling_command import add_scheduling, cluster_of
from data.errors import ImpossibleProblemError

SMALL = ["scheduling", "--cluster", "A100-SXM4-40GB:1x8,T4-16GB:2x4", "--policies", "first-in,has"]


def run(*arguments: str) -> int:
    """The command with its options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quiet", action="store_true")
    add_scheduling(parser.add_subparsers())
    options = parser.parse_args(["--quiet", *arguments])
    return int(options.run(options))


def test_a_made_workload_gives_one_row_for_every_policy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As JSON, with nothing else on stdout."""
    assert run(*SMALL, "--jobs", "5", "--hours", "0.2", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in rows] == ["first-in", "has"]
    assert all(row["jobs"] == 5 and row["jct_mean_h"] > 0 for row in rows)


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
