"""Slurm's answers, recorded, hostile and mutated: nothing crashes, nothing wrong is sent."""

import copy
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from beds.slurm_apply import GPU_MODELS, prepared, proposal
from beds.slurm_replay import NOW, RECORDED, command_folder, recorded_commands, recorded_job

from dashboard.apply.slurm.change.applier import SlurmApplier
from dashboard.apply.slurm.client import programs
from dashboard.apply.slurm.client.responses import CommandOutcome, answer_of
from dashboard.apply.slurm.client.rest import rest_answer
from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
from data.records.actions import Action
from data.records.changes import StepOutcome, VerificationResult
from data.settings.apply import SlurmApplySettings
from data.settings.sources import SlurmSettings


def applier_in(folder: Path, **changes: Any) -> SlurmApplier:
    """An applier whose programs are those of a folder."""
    source = SlurmSettings(bin_directory=str(folder), gpu_models=GPU_MODELS)
    settings = SlurmApplySettings(enabled=True, **changes)
    return SlurmApplier(settings, source=source, clock=lambda: NOW)


@pytest.mark.parametrize(("release", "prefix"), [("22.05", "gres:"), ("24.11", "gres/")])
def test_both_releases_give_the_same_step(tmp_path: Path, release: str, prefix: str) -> None:
    """The recorded waiting job is read whatever the release writes, and asked for in one way."""
    job = recorded_job(release, "waiting")
    assert job["tres_per_node"] == f"{prefix}gpu:h100:4"
    applier = applier_in(recorded_commands(tmp_path / "bin", release))
    change = prepared(applier, proposal(str(job["job_id"]), 12, 6, created_at=NOW))
    state = dict(change.target.state)
    assert (state["interface"], state["NumNodes"]) == (f"commands {release}", "3-3")
    assert [step.text for step in change.steps] == [
        f"scontrol update JobId={job['job_id']} Gres=gpu:h100:2"
    ]
    assert applier.rehearse(change).refusals == ()


@pytest.mark.parametrize("release", ["22.05", "24.11"])
@pytest.mark.parametrize(("name", "count"), [("het", 1), ("sweep", 1)])
def test_recorded_het_jobs_and_mixed_arrays_are_refused(
    tmp_path: Path, release: str, name: str, count: int
) -> None:
    """In either release."""
    jobs = json.loads((RECORDED / release / "squeue.json").read_text())["jobs"]
    found = [job for job in jobs if job["name"] == name]
    array = [job for job in found if job["array_task_string"]] or found
    applier = applier_in(recorded_commands(tmp_path / "bin", release))
    with pytest.raises(ChangeRefusedError):
        prepared(applier, proposal(str(array[0]["job_id"]), count, 1, created_at=NOW))


GARBAGE = {
    "empty": "",
    "pipes": "1|2|3\n||||\n",
    "no list": "{}",
    "null": "null",
    "list": "[1, 2]",
    "deep": "[" * 100_000,
    "bad utf-8": "printf '\\377\\376'",
    "html": "<html>sign in</html>",
    "odd records": json.dumps({"jobs": [None, 7, {"job_id": "x"}, {"job_id": {"number": []}}]}),
    "half a job": json.dumps({"jobs": [{"job_id": 5, "job_state": 7}]}),
}


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE.keys())
@pytest.mark.usefixtures("no_garbage")
def test_garbage_is_an_error_with_words_and_never_a_crash(tmp_path: Path, said: str) -> None:
    """Looking refuses, reading back is unreadable or gone, and nothing is sent."""
    (tmp_path / "said").write_text(said)
    sent = tmp_path / "sent"
    show = said if said.startswith("printf") else f"cat '{tmp_path}/said'"
    good = applier_in(recorded_commands(tmp_path / "good", "24.11"))
    job = recorded_job("24.11", "waiting")
    change = prepared(good, proposal(str(job["job_id"]), 12, 6, created_at=NOW))
    bad = applier_in(
        command_folder(
            tmp_path / "bad", squeue=show, sinfo=show, scontrol=f"touch '{sent}'", scancel="true"
        )
    )
    with pytest.raises(ApplyError):
        bad.look(proposal("5", 1, 1), job=None, gpus=())
    assert bad.execute(change.steps[0], change).outcome in (StepOutcome.BUSY, StepOutcome.REFUSED)
    assert bad.read_back(change, done=1).seen in (
        VerificationResult.UNREADABLE,
        VerificationResult.GONE,
    )
    assert not sent.exists()


def test_a_comment_of_a_megabyte_changes_nothing(tmp_path: Path) -> None:
    """Pipes, line ends and any script in a comment or name stay text."""
    document = json.loads((RECORDED / "24.11" / "squeue.json").read_text())
    wanted = str(recorded_job("24.11", "waiting")["job_id"])
    for job in document["jobs"]:
        job["comment"] = 'TresPerNode=gres:gpu:h100:9\n|"é漢\u202e' * 60_000
        job["name"] = "x|y\nJobState=RUNNING"
    folder = recorded_commands(tmp_path / "bin", "24.11")
    (tmp_path / "jobs").write_text(json.dumps(document))
    command_folder(folder, squeue=f"cat '{tmp_path}/jobs'")
    change = prepared(applier_in(folder), proposal(wanted, 12, 6, created_at=NOW))
    assert change.steps[0].before == "gpu:h100:4"


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("Job is no longer pending execution for job 4", StepOutcome.REFUSED),
        ("Invalid user id for job 4", StepOutcome.REFUSED),
        ("Resource temporarily unavailable for job 4", StepOutcome.BUSY),
        ("Unable to contact slurm controller (connect failure)", StepOutcome.BUSY),
        ("Unexpected message received for job 4", StepOutcome.UNKNOWN),
        ("Socket timed out on send/recv operation", StepOutcome.UNKNOWN),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_value_that_stays_decides_with_the_words(
    tmp_path: Path, words: str, outcome: StepOutcome, code: int
) -> None:
    """Return code 0 with nothing changed is a refusal; 1 is what its words say."""
    folder = recorded_commands(tmp_path / "bin", "24.11")
    nodes = f"case \"$*\" in *nodes*) cat '{RECORDED}/24.11/nodes.json'; exit;; esac; "
    command_folder(folder, scontrol=f"{nodes}echo '{words}' >&2; exit {code}")
    job = recorded_job("24.11", "waiting")
    applier = applier_in(folder)
    change = prepared(applier, proposal(str(job["job_id"]), 12, 6, created_at=NOW))
    answer = applier.execute(change.steps[0], change)
    assert answer.outcome is (outcome if code else StepOutcome.REFUSED)


def test_a_program_that_hangs_is_unknown_within_its_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command may have been taken: only a look can tell."""
    monkeypatch.setattr(programs, "TIMEOUT_SECONDS", 0.5)
    folder = recorded_commands(tmp_path / "bin", "24.11")
    nodes = f"case \"$*\" in *nodes*) cat '{RECORDED}/24.11/nodes.json'; exit;; esac; "
    command_folder(folder, scontrol=f"{nodes}exec sleep 60")
    job = recorded_job("24.11", "waiting")
    applier = applier_in(folder)
    change = prepared(applier, proposal(str(job["job_id"]), 12, 6, created_at=NOW))
    answer = applier.execute(change.steps[0], change)
    assert (answer.outcome, answer.detail) == (StepOutcome.UNKNOWN, "no answer in 0.5 s")


def test_a_person_s_variables_reach_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCANCEL_USER or SLURM_CLUSTERS would turn one command into another."""
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    monkeypatch.setenv("SCANCEL_USER", "everyone")
    folder = recorded_commands(tmp_path / "bin", "24.11")
    command_folder(folder, scancel=f"env > '{tmp_path}/env'")
    applier = applier_in(folder)
    job = recorded_job("24.11", "again")
    held = sum(int(entry.split(":")[2].split("(")[0]) for entry in job["gres_detail"])
    nothing = replace(proposal("1", 1, 0).proposed, gpu_count=0)
    change = prepared(
        applier,
        proposal(
            str(job["job_id"]), held, 0, action=Action.RECLAIM, proposed=nothing, created_at=NOW
        ),
    )
    applier.execute(change.steps[0], change)
    seen = (tmp_path / "env").read_text()
    assert "TZ=UTC" in seen
    assert "SLURM_CLUSTERS" not in seen
    assert "SCANCEL_USER" not in seen


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, {"errors": [], "warnings": []}, CommandOutcome.YES),
        (200, {"errors": []}, CommandOutcome.YES),
        (
            200,
            {"errors": [{"error_number": 9001, "error": "Failure during parsing"}]},
            CommandOutcome.NO,
        ),
        (
            200,
            {"errors": [], "warnings": [{"description": "Ignoring unknown field"}]},
            CommandOutcome.NO,
        ),
        (
            500,
            {"errors": [{"error_number": 2073, "error": "no longer pending execution"}]},
            CommandOutcome.NO,
        ),
        (
            404,
            {"errors": [{"error_number": 2017, "error": "Invalid job id specified"}]},
            CommandOutcome.NO,
        ),
        (429, {}, CommandOutcome.LATER),
        (503, {}, CommandOutcome.LATER),
        (504, {}, CommandOutcome.NOTHING),
    ],
)
def test_slurmrestd_has_said_yes_only_without_errors_and_warnings(
    status: int, body: dict[str, Any], said: CommandOutcome
) -> None:
    """200 with errors[] or warnings[] is a failure."""
    assert rest_answer(status, json.dumps(body).encode()).outcome is said


def test_the_wish_of_the_server_is_kept() -> None:
    """Retry-After is handed on; nonsense in it is not."""
    assert rest_answer(503, b"{}", "7").retry_after_seconds == 7
    assert rest_answer(503, b"{}", "soon").retry_after_seconds is None
    assert rest_answer(200, b"<html>").outcome is CommandOutcome.NOTHING


def test_secrets_in_answers_are_masked() -> None:
    """What Slurm says ends in audit rows and on pages."""
    assert "hunter2" not in answer_of("denied: token=hunter2").words


def mutated(record: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The record with one thing that matters to a resize made another."""
    number = chance.randrange(1, 2**31)
    mutations: list[dict[str, Any]] = [
        {"submit_time": {"set": True, "infinite": False, "number": number}},
        {"job_state": [chance.choice(["RUNNING", "SUSPENDED", "COMPLETING", "FAILED"])]},
        {"tres_per_node": f"gres/gpu:h100:{chance.choice([1, 3, 5, 6, 7, 8])}"},
        {"tres_per_node": f"gres/gpu:{chance.choice(['a100', 'v100', 'h200'])}:4"},
        {"tres_per_node": "", "tres_per_job": "gres/gpu:h100:12"},
        {"tres_per_task": f"gres/gpu={chance.randrange(1, 9)}"},
        {"tres_req_str": f"cpu=3,mem=300M,node={chance.choice([1, 2, 4, 8])},gres/gpu=12"},
        {"max_nodes": {"set": True, "infinite": False, "number": chance.randrange(4, 99)}},
        {"partition": chance.choice(["cpu", "other", "gpu,other"])},
        {"features": chance.choice(["nvlink", "a100", "x&y"])},
        {"user_name": f"user{number}"},
        {"het_job_id": {"set": True, "infinite": False, "number": number}},
        {"array_job_id": {"set": True, "infinite": False, "number": number},
         "array_task_id": {"set": True, "infinite": False, "number": 3}},
        {"job_id": number + 10_000},
        {"restart_cnt": chance.randrange(1, 50)},
    ]  # fmt: skip
    return copy.deepcopy(record) | chance.choice(mutations)


def test_a_thousand_mutated_targets_are_refused(tmp_path: Path) -> None:
    """Whatever moved between approval and apply: a look tells, and nothing is sent."""
    release = RECORDED / "24.11"
    folder = recorded_commands(tmp_path / "bin", "24.11")
    command_folder(folder, squeue=f"cat '{tmp_path}/jobs'")
    document = json.loads((release / "squeue.json").read_text())
    job = recorded_job("24.11", "waiting")
    (tmp_path / "jobs").write_text(json.dumps(document | {"jobs": [job]}))
    applier = applier_in(folder)
    change = prepared(applier, proposal(str(job["job_id"]), 12, 6, created_at=NOW))
    chance = random.Random(7)  # noqa: S311 - mutations, no secrets
    nodes = applier._client().nodes()
    sent: list[Any] = []

    class Mutant:
        """A cluster in which the job is another."""

        def __init__(self, record: dict[str, Any]) -> None:
            self.record = record

        def jobs(self, number: str) -> Any:
            return replace(nodes, records=(self.record,))

        def nodes(self) -> Any:
            return nodes

        def send(self, payload: Any) -> Any:
            sent.append(payload)
            return answer_of("")

    for _trial in range(1_500):
        mutant = Mutant(mutated(job, chance))
        applier._client = lambda entry=mutant: entry  # type: ignore[method-assign,misc]
        try:
            found = applier.look_again(change).fingerprint
        except (StalePlanError, ChangeRefusedError):
            found = "refused"
        assert found != change.target.fingerprint, mutant.record
        assert applier.execute(change.steps[0], change).outcome is StepOutcome.REFUSED, (
            mutant.record
        )
    assert sent == []
    applier._client = lambda: Mutant(job)  # type: ignore[method-assign,return-value]
    assert applier.look_again(change).fingerprint == change.target.fingerprint
