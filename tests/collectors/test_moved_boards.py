"""Boards that move between nodes, and boards that two nodes claim at once."""

from datetime import UTC, datetime

import numpy as np
import pytest

from collectors.readings.dcgm_readings import DroppedReadings, Series, samples_of
from data.catalogue.gpu_catalogue import load_gpu_catalogue

START = datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp()
STEP = 60.0
METRICS = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL")


def series(
    node: str, steps: range, *, uuid: str = "GPU-1", pod: str = "a", **more: str
) -> list[Series]:
    """One board's series on a node, for these steps."""
    times = START + STEP * np.array(steps, dtype=float)
    labels = {"UUID": uuid, "namespace": "team", "pod": pod, "gpu": "0", **more}
    labels |= {"Hostname": node} if not node[:1].isdigit() else {"instance": f"{node}:9400"}
    return [
        Series(metric=metric, labels=labels, times=times, values=np.full(len(times), 50.0))
        for metric in METRICS
    ]


def read(*found: list[Series]) -> tuple[list[tuple[int, str, str, str]], tuple[str, ...]]:
    """(step, board, node, job) of every sample, and the warnings."""
    dropped = DroppedReadings()
    samples = samples_of(
        [column for some in found for column in some], load_gpu_catalogue(), dropped
    )
    steps = [round((at.timestamp() - START) / STEP) for at in samples["sampled_at"]]
    rows = zip(steps, samples["gpu_uuid"], samples["node"], samples["job_id"], strict=True)
    return sorted(rows), dropped.two_nodes.warnings()


@pytest.mark.parametrize("seed", range(25))
def test_every_sample_has_the_node_that_reported_it(seed: int) -> None:
    """Boards move between nodes at drawn times, with and without a new holder: no warning."""
    rng = np.random.default_rng(seed)
    found, expected = [], []
    for board in range(3):
        cuts = [0, *sorted(rng.choice(range(1, 30), size=int(rng.integers(0, 4)), replace=False))]
        for first, last in zip(cuts, [*cuts[1:], 30], strict=True):
            node = str(rng.choice(["z9", "a1", "m5.cluster.local"]))
            pod = str(rng.choice(["a", "b"]))
            found.append(series(node, range(first, last), uuid=f"GPU-{board}", pod=pod))
            expected += [(step, f"GPU-{board}", node, f"team/{pod}") for step in range(first, last)]
    rows, warnings = read(*(found[index] for index in rng.permutation(len(found))))
    assert rows == sorted(expected)
    assert warnings == ()


@pytest.mark.parametrize("pods", [("a", "a"), ("a", "b")])
def test_a_board_on_two_nodes_at_once_is_told_and_counted(pods: tuple[str, str]) -> None:
    """Whoever holds it: both nodes are named, the board counts once."""
    _rows, warnings = read(
        series("n1", range(9), pod=pods[0]),
        series("n2", range(9), pod=pods[1]),
        series("n1", range(9), uuid="GPU-2"),
    )
    (told,) = warnings
    assert told.startswith("two nodes at once report 1 board, such as GPU-1 by n1 and n2")


def test_a_board_is_one_however_exporters_write_its_uuid() -> None:
    """In other letter case or with blanks around it: one board, and two nodes of it are told."""
    uuid = "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
    rows, warnings = read(
        series("n1", range(9), uuid=uuid),
        series("n1", range(9), uuid=f" {uuid.upper()} "),
        series("n2", range(9), uuid=uuid.lower()),
    )
    assert {board for _step, board, _node, _job in rows} == {uuid}
    assert len(rows) == 9
    (told,) = warnings
    assert told.startswith(f"two nodes at once report 1 board, such as {uuid}")


@pytest.mark.parametrize(
    ("one", "other"), [("n1", "n1.cluster.local"), ("N1", "n1"), ("n1", "10.0.0.5")]
)
def test_two_names_of_one_node_are_no_contradiction(one: str, other: str) -> None:
    """A host name, its domain name and its address are one node."""
    _rows, warnings = read(series(one, range(9)), series(other, range(9)))
    assert warnings == ()


def test_one_step_of_both_nodes_is_a_move() -> None:
    """The old series goes stale a step after the board left."""
    rows, warnings = read(series("n2", range(6)), series("n1", range(5, 9)))
    assert warnings == ()
    assert [node for _step, _board, node, _job in rows] == ["n2"] * 6 + ["n1"] * 3
