"""What others in the queue mean for a change: who waits for a job's end, who for its nodes.

On a real Slurm.
"""

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from beds.slurm import SlurmBed
from beds.slurm_apply import MODEL, applier_of, proposal, run_steps

from collectors.shared.collector import Window
from collectors.slurm.backend import read_queue
from collectors.slurm.jobs import slurm_collector
from collectors.slurm.queue_facts import WAITING, with_queue_facts
from collectors.slurm.records import read_node
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job
from data.records.actions import Action
from data.records.changes import StepOutcome, VerificationResult
from data.records.feasible_changes import configuration_refusal
from data.records.plans import Configuration
from data.settings.sources import SlurmSettings

pytestmark = pytest.mark.slurm
NOTHING = Configuration(gpu_model=MODEL, gpu_count=0)
ONE = Configuration(gpu_model=MODEL, gpu_count=1)


def running(bed: SlurmBed, *options: str) -> tuple[str, str]:
    """The raw number and the name for others of a job, or of the first task of an array."""
    job = bed.submit("--gres=gpu:h100:2", *options)
    bed.until("it runs", lambda: "RUNNING" in bed.run("squeue", "-h", "-j", job, "-o", "%T"))
    rows = bed.run("squeue", "-h", "-r", "-t", "R", "-j", job, "-o", "%K %A").splitlines()
    return min(rows).split()[1], job


def read(bed: SlurmBed, raw: str, mode: str) -> Job:
    """The job as the Slurm source tells it."""
    settings = SlurmSettings(
        mode=mode,
        conf_file=str(bed.conf),
        rest_url=bed.rest_url,
        rest_user=bed.plan.user,
        rest_token=bed.token() if mode == "rest" else "",
        gpu_models=f"h100={MODEL}",
    )
    now = utc_now() + timedelta(seconds=1)
    window = Window(start=now - timedelta(hours=1), end=now)
    jobs = slurm_collector(settings, load_gpu_catalogue()).collect(window).jobs
    return next(job for job in jobs if job.job_id == f"slurm:{raw}")


@pytest.mark.parametrize("mode", ["commands", "rest"])
@pytest.mark.parametrize(
    ("options", "dependency", "waits"),
    [
        ([], "afterok:{job}", True),
        ([], "afternotok:{job}", True),
        ([], "afterany:{job}", True),
        ([], "afterany:1:{job}?singleton", True),
        ([], "after:{job}", False),
        ([], "singleton", False),
        (["-J", "next"], "singleton", True),
        (["--array=0-1"], "afterok:{job}", True),
        (["--array=0-1"], "afterok:{job}_0", True),
    ],
)
def test_a_job_that_others_wait_for_is_not_cancelled(
    bed: SlurmBed, mode: str, options: list[str], dependency: str, waits: bool
) -> None:
    """The job that waits is named; fewer GPUs, which end no job, may still be offered."""
    raw, job = running(bed, *options)
    waiting = bed.submit(f"--dependency={dependency.format(job=job)}", "--hold", "-J", "next")
    found = read(bed, raw, mode)
    assert (waiting in configuration_refusal(found, NOTHING)) is waits
    assert "wait for its end" not in configuration_refusal(found, ONE)
    applier = applier_of(bed, mode)
    wanted = proposal(raw, 2, 0, action=Action.RECLAIM)
    if not waits:
        assert applier.look(wanted, job=None, gpus=()).name == f"slurm:{raw}"
        return
    with pytest.raises(
        ChangeRefusedError, match=rf"wait for the end of .*{waiting} \((after|singleton)"
    ):
        applier.look(wanted, job=None, gpus=())
    bed.run("scancel", waiting)
    bed.until("it is gone", lambda: waiting not in bed.run("squeue", "-h", "-o", "%A").split())
    assert applier.look(wanted, job=None, gpus=()).name == f"slurm:{raw}"


@pytest.mark.parametrize(
    ("options", "stands"),
    [
        (["--exclusive", "--gres=gpu:h100:1"], True),
        (["--gres=gpu:h100:4", "-N2"], True),
        (["--gres=gpu:h100:1", "-w", "h1", "-x", "h2"], True),
        (["--gres=gpu:h100:4", "--hold"], False),
        (["--gres=gpu:h100:4", "--begin=now+1hour"], False),
    ],
)
def test_a_running_job_is_not_requeued_behind_others(
    bed: SlurmBed, options: list[str], stands: bool
) -> None:
    """It would give up its GPUs and start only after them; a setting allows it all the same."""
    raw, _job = running(bed)
    for _rest in range(3):
        running(bed)
    waiting = bed.submit(*options, "-J", "next")
    bed.until("Slurm looked", lambda: bed.run("squeue", "-h", "-j", waiting, "-o", "%r") != "None")
    found = read(bed, raw, "commands")
    said = configuration_refusal(found, ONE)
    assert (waiting in said) is stands
    assert ("requeue_behind_others" in said) is stands
    assert configuration_refusal(found, ONE, behind_others=True) == ""
    wanted = proposal(raw, 2, 1)
    for allowed in (False, True):
        applier = applier_of(bed, allow_requeue=True, requeue_behind_others=allowed)
        change = applier.change_for(wanted, applier.look(wanted, job=None, gpus=()))
        rehearsal = applier.rehearse(change)
        assert bool(rehearsal.refusals) is (stands and not allowed)
        assert (waiting in "".join(rehearsal.refusals + rehearsal.warnings)) is stands


@pytest.mark.parametrize(("minutes", "stands"), [(30, True), (60 * 30, False)])
def test_a_running_job_is_not_requeued_onto_a_node_that_is_reserved(
    bed: SlurmBed, minutes: int, stands: bool
) -> None:
    """Maintenance within its time limit would keep it waiting; later it does not."""
    raw, _job = running(bed, "--time=20:00:00", "-w", "h1")
    options = [f"StartTime=now+{minutes}minutes", "Duration=60", "Nodes=h1"]
    bed.run("scontrol", "create", "reservation", "ReservationName=paper", *options,
            "Flags=MAINT,IGNORE_JOBS", f"Users={bed.plan.user}")  # fmt: skip
    try:
        applier = applier_of(bed, allow_requeue=True)
        wanted = proposal(raw, 2, 1)
        change = applier.change_for(wanted, applier.look(wanted, job=None, gpus=()))
        refusals = applier.rehearse(change).refusals
        assert ("a reservation of h1" in "".join(refusals)) is stands
        assert (
            "a reservation of h1" in configuration_refusal(read(bed, raw, "commands"), ONE)
        ) is stands
    finally:
        bed.run("scontrol", "delete", "ReservationName=paper")


@pytest.mark.slow
def test_a_requeued_job_that_does_not_start_again_is_failing(bed: SlurmBed) -> None:
    """It ran: that it waits is no success, neither after the change nor after the way back."""
    raw, _job = running(bed, "-w", "h1", "--requeue")
    full = bed.submit("-w", "h1", "--gres=gpu:h100:4", "--priority=1000000")
    bed.until("Slurm looked", lambda: bed.run("squeue", "-h", "-j", full, "-o", "%r") != "None")
    applier = applier_of(bed, allow_requeue=True, requeue_behind_others=True)
    change = applier.change_for(
        proposal(raw, 2, 1), applier.look(proposal(raw, 2, 1), job=None, gpus=())
    )
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    bed.until("the other has its node", lambda: bed.states().get(full) == "RUNNING")
    done = len(change.steps)
    bed.until("Slurm looked", lambda: "Reason" in applier.read_back(change, done=done).detail)
    seen = applier.read_back(change, done=done)
    assert seen.seen is VerificationResult.NOT_YET
    assert "the job ran before the change, and waits since its requeue" in seen.detail
    hasty = applier_of(bed, allow_requeue=True, pending_seconds=0.5)
    bed.until(
        "it has waited",
        lambda: hasty.read_back(change, done=done).seen is VerificationResult.FAILING,
    )
    back = applier.change_back(change, applier.look_again(change))
    assert {step.outcome for step in run_steps(applier, back)} == {StepOutcome.DONE}
    done_back = len(back.steps)
    bed.until(
        "it is as it was",
        lambda: applier.read_back(back, done=done_back).seen is VerificationResult.AS_INTENDED,
    )
    assert "it ran then and waits now" in applier.read_back(back, done=done_back).detail
    bed.run("scancel", full)
    bed.until("it runs again", lambda: bed.states().get(raw) == "RUNNING")
    assert hasty.read_back(back, done=done_back).detail == "the job is RUNNING with 2 GPUs"


def test_a_job_of_another_partition_waits_for_the_same_nodes(bed: SlurmBed) -> None:
    """Partitions overlap on most sites."""
    bed.run("scontrol", "create", "PartitionName=low", "Nodes=h1,h2")
    try:
        raw, _job = running(bed, "-p", "low", "-w", "h1")
        running(bed, "-p", "low", "-w", "h1")
        waiting = bed.submit("-p", "gpu", "-w", "h1", "--gres=gpu:h100:4")
        bed.until(
            "Slurm looked", lambda: bed.run("squeue", "-h", "-j", waiting, "-o", "%r") != "None"
        )
        assert waiting in configuration_refusal(read(bed, raw, "commands"), ONE)
        applier = applier_of(bed, allow_requeue=True)
        wanted = proposal(raw, 2, 1)
        change = applier.change_for(wanted, applier.look(wanted, job=None, gpus=()))
        assert waiting in "".join(applier.rehearse(change).refusals)
        bed.run("scancel", "-u", bed.plan.user)
        bed.until("no job is left", lambda: not bed.run("squeue", "-h"))
    finally:
        bed.run("scontrol", "delete", "PartitionName=low")


@pytest.mark.parametrize("mode", ["commands", "rest"])
def test_a_site_word_for_a_gpu_model_is_no_other_model(bed: SlurmBed, mode: str) -> None:
    """Telemetry told the plan which model `h100` is; no setting maps it."""
    raw, _job = running(bed)
    applier = applier_of(bed, mode, gpu_models="")
    assert applier.look(proposal(raw, 2, 0, action=Action.RECLAIM), job=None, gpus=())


def record(number: int, state: str, reason: str, **changes: Any) -> dict[str, Any]:
    """A job of two H100 as `squeue --json` tells it."""
    return {
        "job_id": number,
        "job_state": state,
        "state_reason": reason,
        "partition": "gpu",
        "qos": "normal",
        "account": "ml",
        "nodes": "h1" if state == "RUNNING" else "",
        "tres_per_node": "gres:gpu:h100:2",
        "tres_req_str": "cpu=1,node=1,gres/gpu=2",
    } | changes


@pytest.mark.parametrize(
    ("reason", "changes", "stands"),
    [
        ("QOSGrpJobsLimit", {}, True),
        ("QOSGrpJobsLimit", {"partition": "other"}, True),
        ("QOSGrpJobsLimit", {"partition": "other", "qos": "high"}, False),
        ("AssocGrpGRES", {"partition": "other"}, True),
        ("AssocGrpGRES", {"partition": "other", "account": "physics"}, False),
        ("JobArrayTaskLimit", {}, False),
        ("Licenses", {}, False),
        ("Resources", {"partition": "other,gpu"}, True),
        ("Resources", {"partition": "other"}, False),
        ("ReqNodeNotAvail,_UnavailableNodes:h7", {}, True),
        ("Priority", {"tres_per_node": "", "tres_req_str": "cpu=1"}, True),
        ("JobHeldUser", {}, False),
        ("BeginTime", {}, False),
        ("Dependency", {}, False),
    ],
)
def test_whoever_the_end_of_a_job_lets_start_waits_for_its_nodes(
    reason: str, changes: dict[str, Any], stands: bool
) -> None:
    """For room in its partitions, or for a limit of its QOS or account that it fills."""
    records = [record(1, "RUNNING", "None"), record(2, "PENDING", reason, **changes)]
    job, _other = with_queue_facts(read_queue(records, Counter()), records, ())
    assert (dict(job.extra).get("waiting", "") == f"job 2 waits ({reason})") is stands


def told(records: list[dict[str, Any]], *nodes: dict[str, Any]) -> dict[str, str]:
    """The facts of the first job in this queue."""
    read_nodes = [read_node(node) for node in nodes]
    job, *_rest = with_queue_facts(read_queue(records, Counter()), records, read_nodes)
    return dict(job.extra)


@pytest.mark.parametrize(
    ("reason", "shared"),
    [
        ("Licenses", {"licenses": "matlab:2"}),
        ("JobArrayTaskLimit", {"array_job_id": 9, "array_task_id": 1}),
    ],
)
def test_what_a_job_holds_beside_nodes_is_waited_for_too(
    reason: str, shared: dict[str, Any]
) -> None:
    """Requeued, it would find its licence or its turn taken."""
    first, second = record(1, "RUNNING", "None"), record(2, "PENDING", reason, partition="other")
    assert reason in told([first | shared, second | shared])["waiting"]


@pytest.mark.parametrize(
    ("changes", "types"),
    [
        ({"tres_per_node": "gres:gpu:2"}, "a100 or h100"),
        ({"tres_per_node": "gres:gpu:2", "partition": "old"}, None),
        ({"tres_per_node": "gres:gpu:2", "features": "nvlink"}, None),
        ({"tres_per_node": "gres:gpu:2", "features": "nvlink|ib"}, "a100 or h100"),
        ({"tres_per_node": "gres:gpu:2", "required_nodes": "h[1-2]"}, None),
        ({}, None),
    ],
)
def test_a_request_without_a_type_may_start_on_another(
    changes: dict[str, Any], types: str | None
) -> None:
    """Approved was fewer of the GPUs that it has."""
    nodes = [
        {"name": name, "state": "mixed", "gres": f"gpu:{word}:4", "partitions": partitions,
         "active_features": features}
        for name, word, partitions, features in (
            ("h1", "h100", ["gpu"], "nvlink"), ("a1", "a100", ["gpu", "old"], "pcie")
        )
    ]  # fmt: skip
    found = told([record(1, "RUNNING", "None", **changes)], *nodes)
    assert found.get("untyped") == types


def test_a_node_that_takes_no_jobs_does_not_take_its_own_again() -> None:
    """Drained after the job began."""
    node = {"name": "h1", "state": "mixed", "state_flags": ["DRAIN"], "gres": "gpu:h100:4"}
    for reason, waiting in (("fan", "h1 takes no jobs"), ("trimtab TT-7", None)):
        found = told([record(1, "RUNNING", "None")], node | {"reason": reason})
        assert found.get("waiting") == waiting, "one that a consolidation closes is to be left"


@pytest.mark.parametrize(
    ("named", "reason", "options", "stands"),
    [
        ("h1", "Resources", [], True),
        ("h2", "Resources", [], False),
        ("h2", "Priority", [], False),
        ("h2", "Resources", ["-N2"], True),
        ("h2", "QOSGrpJobsLimit", ["--hold"], True),
    ],
)
def test_a_job_that_needs_other_nodes_is_no_line(
    bed: SlurmBed, named: str, reason: str, options: list[str], stands: bool
) -> None:
    """It cannot take those that a requeue frees for a moment; a limit set free lets it start."""
    first = bed.submit("-w", "h1", "--gres=gpu:h100:4")
    bed.until("it runs", lambda: bed.states().get(first) == "RUNNING")
    other = bed.submit("-w", "h2", "--gres=gpu:h100:4")
    bed.until("it runs", lambda: bed.states().get(other) == "RUNNING")
    bed.submit("-w", named, "--gres=gpu:h100:2", *options)
    records = [
        entry
        | ({"state_reason": reason} if entry["job_id"] not in (int(first), int(other)) else {})
        for entry in json.loads(bed.run("squeue", "--json"))["jobs"]
    ]
    told = {
        job.raw_id: dict(job.extra)
        for job in with_queue_facts(read_queue(records, Counter()), records, ())
    }
    assert (WAITING in told[first]) is stands


@pytest.mark.parametrize(("options", "minutes"), [([], ""), (["--time-min=30"], "30")])
def test_the_shortest_limit_that_a_job_takes_is_read(
    bed: SlurmBed, options: list[str], minutes: str
) -> None:
    """Slurm refuses a limit below it: "Invalid time-min specification"."""
    raw, _job = running(bed, "--time=180", *options)
    told = read(bed, raw, "commands").scheduler
    assert told is not None
    assert dict(told.extra).get("time_min_minutes", "") == minutes
