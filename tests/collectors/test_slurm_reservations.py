"""What `scontrol show reservations` and slurmrestd say, read without a cluster."""

from datetime import UTC, datetime

import pytest

from collectors.slurm.records import SlurmNode
from collectors.slurm.reservations import reservations_in, with_reservations

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
NODE = SlurmNode(
    name="h1", state="idle", reason="", schedulable=True, gpus=(), gpus_in_use=0, cpus=None,
    memory_mib=None, partitions=(), features=(), shared_gpus=frozenset(), shares={},
)  # fmt: skip


def line(nodes: str) -> str:
    """A line as 22.05 prints it."""
    times = "StartTime=2026-01-05T13:00:00 EndTime=2026-01-05T15:00:00"
    return f"ReservationName=paper {times} Nodes={nodes} NodeCnt=1 Flags=SPEC_NODES"


@pytest.mark.parametrize("nodes", ["h[1-", "h]1", "h[1-2]["])
def test_a_reservation_that_cannot_be_read_is_told(nodes: str) -> None:
    """The nodes stay as they are, with a warning: the collection goes on."""
    found, warnings = with_reservations([NODE], lambda: reservations_in(line(nodes)), NOW)
    assert found == (NODE,)
    assert "reservations of nodes are not visible" in warnings[0]


def test_a_reservation_of_no_node_takes_none() -> None:
    """One of licenses alone has `(null)` for its nodes; there may be none at all."""
    for text in (line("(null)"), "No reservations in the system"):
        assert with_reservations([NODE], lambda text=text: reservations_in(text), NOW) == (
            (NODE,), ()
        )  # fmt: skip
