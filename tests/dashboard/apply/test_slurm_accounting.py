"""A requeued job that slurmdbd has not recorded: Slurm changes and releases it only afterwards."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from beds.slurm import SlurmBed
from beds.slurm_apply import applier_of, nodes_answer, prepared, proposal, run_steps

from dashboard.apply.contract.applier import Remains
from dashboard.apply.slurm.client.responses import CommandOutcome, answer_of
from data.records.changes import StepOutcome

_INDEX_SECONDS = 8.0
"""Every 5 s the controller asks slurmdbd for the indices that are missing."""
UPDATE = ("scontrol", "update", "Nice=2")


@contextmanager
def silent_accounting(bed: SlurmBed) -> Iterator[None]:
    """Let slurmdbd answer nothing, as one does whose database is stuck."""
    accounting = bed.daemons["slurmdbd"]
    accounting.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        accounting.send_signal(signal.SIGCONT)


@pytest.mark.slurm
@pytest.mark.slow
def test_a_job_that_slurm_has_lost_is_told_with_the_way_out(bed: SlurmBed) -> None:
    """Slurm 22.05 never records a requeue while which its controller was restarted (measured).

    The step is busy, not refused; given up, the change waits for the release and names it; once a
    person has cancelled the job, nothing is left to wait for.
    """
    job = bed.submit("--gres=gpu:h100:4", "--requeue")
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    time.sleep(_INDEX_SECONDS)  # only a job that was recorded can lose that by its requeue
    applier = applier_of(bed, allow_requeue=True)
    change = prepared(applier, proposal(job, 4, 2))
    with silent_accounting(bed):
        bed.run("scontrol", "requeuehold", job)
        bed.until("it waits", lambda: bed.states().get(job) == "PENDING")
        time.sleep(_INDEX_SECONDS)  # an update before that would stop the whole controller
        if bed.plan.version > (22, 5):  # 24.11 changes a job that is not recorded, too
            assert bed.words(*UPDATE, f"JobId={job}") == ""
            return
        assert "DB index is being set" in bed.words(*UPDATE, f"JobId={job}")
        bed.end("slurmctld")
        bed.spawn("slurmctld", "slurmctld", "-D")
    bed.until("slurmctld", lambda: "is UP" in bed.run("scontrol", "ping", check=False))
    nodes_answer(bed)
    assert "DB index is being set" in bed.words(*UPDATE, f"JobId={job}")
    first = replace(change, steps=change.steps[:2])
    assert {step.outcome for step in run_steps(applier, first)} == {StepOutcome.DONE}
    busy = applier.execute(change.steps[2], change)
    assert busy.outcome is StepOutcome.BUSY
    assert "look whether slurmdbd runs" in busy.detail
    closed = applier.close(change, sent=3)
    assert closed.left is Remains.UNKNOWN
    assert f"scontrol release {job}" in closed.detail
    assert "cancel the job and submit it again" in closed.detail
    bed.run("scancel", job)
    bed.until("it is over", lambda: bed.states().get(job) != "PENDING")
    assert applier.close(change, sent=3).left is Remains.AS_IT_IS


def test_an_unrecorded_job_is_a_matter_of_waiting() -> None:
    """The answer is later, with what to look at; a job that merely has its number is refused."""
    answer = answer_of(
        "Job update not available right now, the DB index is being set, try again in a bit"
    )
    assert answer.outcome is CommandOutcome.LATER
    assert "slurmdbd" in answer.words
    assert answer_of("Invalid partition for job 2103").outcome is CommandOutcome.NO
