"""Steps sent to a Slurm that answers as recorded: done, different, taken back, or not sent."""

import json
from typing import Any

import pytest
from beds.slurm_apply import GPU_MODELS, prepared, proposal
from beds.slurm_replay import NOW, RECORDED, recorded_job

from dashboard.apply.slurm.change.applier import SlurmApplier
from dashboard.apply.slurm.client.client import Records
from dashboard.apply.slurm.client.responses import CommandAnswer, CommandOutcome, answer_of
from data.records.actions import Action
from data.records.changes import StepOutcome, VerificationResult
from data.settings.apply import SlurmApplySettings
from data.settings.sources import SlurmSettings


class Playing:
    """A cluster that answers one record after the other, the last one for good."""

    def __init__(self, *records: dict[str, Any], said: str = "") -> None:
        self.records = list(records)
        self.said = said
        self.sent: list[list[str]] = []

    def jobs(self, number: str) -> Records:
        """The next record."""
        record = self.records.pop(0) if len(self.records) > 1 else self.records[0]
        return Records(interface="commands 24.11", records=(record,))

    def nodes(self) -> Records:
        """The recorded nodes."""
        nodes = json.loads((RECORDED / "24.11" / "nodes.json").read_text())["nodes"]
        return Records(interface="commands 24.11", records=tuple(nodes))

    def send(self, payload: Any) -> CommandAnswer:
        """Remember what was sent, and answer."""
        self.sent.append(payload["argv"])
        return (
            answer_of(self.said)
            if self.said
            else CommandAnswer(outcome=CommandOutcome.YES, words="")
        )


def played(*records: dict[str, Any], said: str = "") -> tuple[SlurmApplier, Playing]:
    """An applier at such a cluster."""
    applier = SlurmApplier(
        SlurmApplySettings(), source=SlurmSettings(gpu_models=GPU_MODELS), clock=lambda: NOW
    )
    cluster = Playing(*records, said=said)
    applier._client = lambda: cluster  # type: ignore[method-assign]
    return applier, cluster


def test_a_job_that_starts_as_it_is_held_is_let_go_again() -> None:
    """It would keep priority 0, and stay waiting after its next requeue."""
    job = recorded_job("24.11", "waiting")
    runs = job | {"job_state": ["RUNNING"], "nodes": "h100-[01-03]"}
    applier, cluster = played(job, job, runs)
    change = prepared(applier, proposal(str(job["job_id"]), 12, 1, created_at=NOW))
    answer = applier.execute(change.steps[0], change)
    assert answer.outcome is StepOutcome.REFUSED
    assert "its hold was taken back" in answer.detail
    number = str(job["job_id"])
    assert cluster.sent == [["scontrol", "uhold", number], ["scontrol", "release", number]]


def test_a_change_that_arrived_is_done_whatever_was_said() -> None:
    """Return code 1, a timeout or a cut connection after the value was set: it is set."""
    job = recorded_job("24.11", "waiting")
    changed = job | {"tres_per_node": "gres/gpu:h100:2", "tres_req_str": "cpu=3,node=3,gres/gpu=6"}
    for said in ("Changes to job priority are not persistent", "Socket timed out", "no answer"):
        applier, cluster = played(job, job, changed, said=said)
        change = prepared(applier, proposal(str(job["job_id"]), 12, 6, created_at=NOW))
        answer = applier.execute(change.steps[0], change)
        assert answer.outcome is StepOutcome.DONE
        assert applier.execute(change.steps[0], change).detail == "Gres is gpu:h100:2 already"
        assert len(cluster.sent) == 1


def test_another_value_than_sent_is_different() -> None:
    """An administrator, or a job_submit plugin, wrote something else."""
    job = recorded_job("24.11", "waiting")
    applier, _cluster = played(job, job, job | {"tres_per_node": "gres/gpu:h100:3"})
    change = prepared(applier, proposal(str(job["job_id"]), 12, 6, created_at=NOW))
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.UNKNOWN
    assert applier.read_back(change, done=1).seen is VerificationResult.DIFFERENT


ONE_NODE = {"tres_req_str": "cpu=1,node=1", "max_nodes": 1}


@pytest.mark.parametrize(
    ("reached", "done", "seen"),
    [
        ({}, 4, VerificationResult.UNTOUCHED),
        ({}, 0, VerificationResult.UNTOUCHED),
        ({"priority": 0, "state_reason": "JobHeldUser"}, 1, VerificationResult.AS_INTENDED),
        ({"priority": 0, "state_reason": "JobHeldUser"}, 2, VerificationResult.UNTOUCHED),
        ({"priority": 0, "state_reason": "JobHeldUser", **ONE_NODE}, 2,
         VerificationResult.AS_INTENDED),
        ({"priority": 0, "state_reason": "JobHeldUser", **ONE_NODE,
          "tres_per_node": "gres/gpu:h100:1"}, 4, VerificationResult.UNTOUCHED),
        ({**ONE_NODE, "tres_per_node": "gres/gpu:h100:1"}, 4,
         VerificationResult.AS_INTENDED),
        ({**ONE_NODE, "tres_per_node": "gres/gpu:h100:1",
          "state_reason": "None"}, 4, VerificationResult.NOT_YET),
        ({**ONE_NODE, "tres_per_node": "gres/gpu:h100:1",
          "state_reason": "BadConstraints", "priority": 0}, 4, VerificationResult.FAILING),
        ({**ONE_NODE, "tres_per_node": "gres/gpu:h100:4"}, 4,
         VerificationResult.DIFFERENT),
        ({"job_state": ["CANCELLED"]}, 4, VerificationResult.GONE),
        ({"submit_time": 5}, 4, VerificationResult.GONE),
    ],
)  # fmt: skip
def test_reading_back_tells_how_far_the_steps_came(
    reached: dict[str, Any], done: int, seen: VerificationResult
) -> None:
    """After a crash the step that was being sent is told from those before it."""
    job = recorded_job("24.11", "waiting")
    applier, cluster = played(job)
    change = prepared(applier, proposal(str(job["job_id"]), 12, 1, created_at=NOW))
    assert [step.verb for step in change.steps] == ["hold", "update", "update", "release"]
    cluster.records = [job | reached]
    assert applier.read_back(change, done=done).seen is seen


def test_a_job_that_has_run_longer_than_its_new_limit_is_not_killed() -> None:
    """The command is not sent: Slurm would end the job at once."""
    job = recorded_job("24.11", "two|nodes")
    applier, cluster = played(job)
    held = sum(int(entry.split(":")[2].split("(")[0]) for entry in job["gres_detail"])
    details = (("time_limit_seconds", "600"),)
    shorter = proposal(
        str(job["job_id"]), held, held, action=Action.TIME_LIMIT, details=details, created_at=NOW
    )
    change = prepared(applier, shorter)
    assert "would be killed" in applier.execute(change.steps[0], change).detail
    assert cluster.sent == []
