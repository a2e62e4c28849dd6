"""A requeue that a limit of an account or a QOS would keep waiting is refused by its name."""

from collections.abc import Iterator

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_apply import applier_of, prepared, proposal, run_steps, running
from beds.slurm_files import BedNode

from data.records.changes import StepOutcome

pytestmark = pytest.mark.slurm
NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=8, features="h100"),
    BedNode(name="c1", features="c"),
)
FREE = "gres/gpu=-1,gres/gpu:h100=-1"


@pytest.fixture(scope="module")
def limited() -> Iterator[SlurmBed]:
    """A cluster that enforces limits."""
    enforce = "AccountingStorageEnforce=associations,limits,qos"
    with running_slurm(nodes=NODES, accounting=True, further=enforce) as bed:
        for words in (
            ("account", "lab"), ("account", "ml", "parent=lab"),
            ("user", bed.plan.user, "account=ml"),
        ):  # fmt: skip
            bed.run("sacctmgr", "-i", "add", *words, check=False)
        trial = ("sbatch", "--parsable", "--hold", "-Aml", "--wrap=true")
        bed.until("the account is known", lambda: bool(bed.run(*trial, check=False)))
        bed.run("scancel", "-u", bed.plan.user)
        yield bed


def modify(bed: SlurmBed, *words: str) -> None:
    """Set a limit, and wait until the controller enforces it."""
    bed.run("sacctmgr", "-i", "modify", *words, check=False)
    shown = ("scontrol", "-o", "show", "assoc_mgr", "flags=qos,assoc")
    wanted = words[-1].partition("=")[2]
    lifted = wanted.endswith("=-1")
    bed.until("the controller knows it", lambda: lifted or wanted in bed.run(*shown))


ME = "{user}"
"""Stands for the user of the cluster."""


@pytest.mark.parametrize(
    ("limit", "lifted", "named", "beside"),
    [
        (("account", "ml", "set", "GrpTRES=gres/gpu=3"), "GrpTRES=gres/gpu=-1", "ml: 2 of 3", 0),
        (("account", "lab", "set", "GrpTRES=gres/gpu:h100=3"), "GrpTRES=gres/gpu:h100=-1",
         "account lab: 2 of 3 gres/gpu:h100", 0),
        (("user", ME, "set", "GrpTRES=gres/gpu=5"), "GrpTRES=gres/gpu=-1", "4 of 5 gres/gpu", 2),
        (("user", ME, "set", "MaxTRES=gres/gpu=3"), "MaxTRES=gres/gpu=-1", "for each job", 0),
        (("qos", "normal", "set", "GrpTRES=gres/gpu=3"), "GrpTRES=gres/gpu=-1", "normal: 2 of 3",
         0),
        (("qos", "normal", "set", "MaxTRESPerJob=gres/gpu=3"), "MaxTRESPerJob=gres/gpu=-1",
         "qos normal: at most 3 gres/gpu for each job", 0),
        (("qos", "normal", "set", "MaxTRESPerUser=gres/gpu=3"), "MaxTRESPerUser=gres/gpu=-1",
         "qos normal: at most 3 gres/gpu for each user, of which 2 are in use", 0),
        (("qos", "normal", "set", "MaxTRESPerUser=gres/gpu:h100=5"),
         "MaxTRESPerUser=gres/gpu:h100=-1",
         "at most 5 gres/gpu:h100 for each user, of which 4 are in use", 2),
        (("qos", "normal", "set", "MaxTRESPerAccount=gres/gpu=5"), "MaxTRESPerAccount=gres/gpu=-1",
         "at most 5 gres/gpu for each account, of which 4 are in use", 2),
    ],
)  # fmt: skip
def test_a_way_back_that_a_limit_would_stop_is_refused_and_names_it(
    limited: SlurmBed, limit: tuple[str, ...], lifted: str, named: str, beside: int
) -> None:
    """It would end PENDING, AssocGrpGRES; once the limit is lifted the way is open.

    `beside` are GPUs that another job of the same user holds meanwhile.
    """
    limit = tuple(limited.plan.user if word == ME else word for word in limit)
    job = running(limited, "-Aml", "--gres=gpu:h100:4", "-N1", "--requeue")
    if beside:
        running(limited, "-Aml", f"--gres=gpu:h100:{beside}", "-N1")
    applier = applier_of(limited, allow_requeue=True)
    change = prepared(applier, proposal(job, 4, 2))
    assert not applier.rehearse(change).refusals
    assert {result.outcome for result in run_steps(applier, change)} == {StepOutcome.DONE}
    limited.until("it runs again", lambda: limited.states().get(job) == "RUNNING")
    modify(limited, *limit)
    back = applier.change_back(change, applier.look_again(change))
    limited.until(named, lambda: named in "; ".join(applier.rehearse(back).refusals))
    modify(limited, *limit[:3], lifted)
    limited.until("it is lifted", lambda: not applier.rehearse(back).refusals)
    limited.run("scancel", "-u", limited.plan.user)
    limited.until("it is gone", lambda: not limited.run("squeue", "-h"))


@pytest.mark.parametrize(
    ("limit", "lifted", "named"),
    [
        (("account", "lab", "set", "GrpTRES=gres/gpu=3"), "GrpTRES=gres/gpu=-1", "account lab"),
        (("user", ME, "set", "MaxTRES=gres/gpu=3"), "MaxTRES=gres/gpu=-1", "for each job"),
        (("qos", "normal", "set", "MaxTRESPerUser=gres/gpu=3"), "MaxTRESPerUser=gres/gpu=-1",
         "for each user"),
    ],
)  # fmt: skip
def test_a_waiting_job_gets_no_request_that_a_limit_never_lets_start(
    limited: SlurmBed, limit: tuple[str, ...], lifted: str, named: str
) -> None:
    """Neither on the way back nor at first; fewer GPUs are never held back by a limit."""
    limit = tuple(limited.plan.user if word == ME else word for word in limit)
    fills = running(limited, "-Aml", "--gres=gpu:h100:8", "-N1")
    job = limited.submit("-Aml", "--gres=gpu:h100:4", "-N1")
    limited.until("it waits", lambda: "Resources" in limited.words("squeue", "-h", "-j", job))
    applier = applier_of(limited)
    change = prepared(applier, proposal(job, 4, 2))
    assert {result.outcome for result in run_steps(applier, change)} == {StepOutcome.DONE}
    modify(limited, *limit)
    back = applier.change_back(change, applier.look_again(change))
    assert named in "; ".join(applier.rehearse(back).refusals)
    assert not applier.rehearse(prepared(applier, proposal(job, 2, 1))).refusals
    modify(limited, *limit[:3], lifted)
    limited.until("it is lifted", lambda: not applier.rehearse(back).refusals)
    limited.run("scancel", fills, job)
    limited.until("it is gone", lambda: not limited.run("squeue", "-h"))


def test_nodes_that_slurmctld_notes_with_an_update_go_when_the_scheduler_looks(
    limited: SlurmBed,
) -> None:
    """24.11 writes NumNodes=1-1 with any update of the GPUs of a job that asked for no number.

    With accounting alone, and neither NumNodes nor slurmrestd takes it back. A job that waits for
    its begin is not looked at, so that it shows it until then.
    """
    fills = running(limited, "-Aml", "--gres=gpu:h100:8", "-N1")
    job = limited.submit("-Aml", "--gres=gpu:h100:4", "--begin=now+1hour")

    def nodes() -> str:
        shown = limited.run("scontrol", "-o", "show", "job", job)
        return shown.partition(" NumNodes=")[2].split()[0]

    assert nodes() == "1"
    applier = applier_of(limited)
    change = prepared(applier, proposal(job, 4, 2))
    assert {result.outcome for result in run_steps(applier, change)} == {StepOutcome.DONE}
    back = applier.change_back(change, applier.look_again(change))
    assert {result.outcome for result in run_steps(applier, back)} == {StepOutcome.DONE}
    noted = limited.plan.version >= (24, 11)
    assert nodes() == ("1-1" if noted else "1")
    limited.words("scontrol", "update", f"JobId={job}", "NumNodes=0")
    assert nodes() == ("1-1" if noted else "1")
    limited.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    limited.until("it waits", lambda: "Resources" in limited.words("squeue", "-h", "-j", job))
    assert nodes() == "1"
    limited.run("scancel", fills, job)
    limited.until("it is gone", lambda: not limited.run("squeue", "-h"))
