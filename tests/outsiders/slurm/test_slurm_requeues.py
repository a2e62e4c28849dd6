"""Running jobs among drawn neighbours on a real Slurm: requeued, a job runs again, or it is left.

The oracle is squeue: after a refusal the job runs on as before, after an apply it runs again with
the GPUs that were approved, of the type that it had.
"""

import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.slurm import SlurmBed, program, running_slurm
from beds.slurm_apply import applier_of, proposal, run_steps
from beds.slurm_files import BedNode
from outsiders.campaign import run_campaign
from reliability import Measured

from dashboard.apply.slurm.change.applier import SlurmApplier
from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
from data.records.changes import Change, StepOutcome, VerificationResult
from data.records.plans import Configuration

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.slow_end]
MODELS = {"h100": "H100-SXM5-80GB", "a100": "A100-SXM4-80GB"}
CPUS = 8
NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=4, cpus=CPUS, features="h100"),
    BedNode(name="h2", gpu_type="h100", gpus=4, cpus=CPUS, features="h100"),
    BedNode(name="a1", gpu_type="a100", gpus=4, cpus=CPUS, features="a100"),
    BedNode(name="c1", cpus=CPUS, features="cpuonly"),
)
FURTHER = """\
Licenses=solver:2
AccountingStorageEnforce=associations,limits,qos
PartitionName=hot Nodes=h1,h2 MaxTime=1-00:00:00 State=UP
PartitionName=over Nodes=h1,h2 MaxTime=1-00:00:00 State=UP"""
AGAIN_SECONDS = 60.0
"""In which a job that was requeued has to run again: nothing else starts meanwhile."""
SITES: dict[str, tuple[str, ...]] = {
    "drain": ("NodeName={node}", "State=DRAIN", "Reason=fan"),
    "drain-other": ("NodeName={other}", "State=DRAIN", "Reason=fan"),
    "maxtime": ("PartitionName={partition}", "MaxTime=00:30:00"),
    "down": ("PartitionName={partition}", "State=DOWN"),
    "nodes": ("PartitionName={partition}", "MaxNodes=1"),
    "accounts": ("PartitionName={partition}", "AllowAccounts=others"),
    "not-accounts": ("PartitionName={partition}", "DenyAccounts=ml"),
    "qos": ("PartitionName={partition}", "AllowQos=urgent"),
    "not-qos": ("PartitionName={partition}", "DenyQos=normal,single"),
}


@dataclass(frozen=True)
class Neighbours:
    """The plainest case: a job of four H100 is to have two, and nobody else is there."""

    typed: bool = True
    form: str = "gres"
    partition: str = "hot"
    wanted: int = 2
    pinned: bool = False
    licensed: bool = False
    limited: bool = False
    array: bool = False
    deadline: int = 0
    range: bool = False
    full: bool = False
    rival: str = ""
    site: str = ""

    def options(self) -> list[str]:
        """Return the options of sbatch of the job."""
        asked = "h100:4" if self.typed else "4"
        found = ["--requeue", "-t60", "-c4", f"-p{self.partition}"]
        found.append(f"--gres=gpu:{asked}" if self.form == "gres" else f"--{self.form}={asked}")
        found += ["-wh1"] if self.pinned else []
        found += [f"--deadline=now+{self.deadline}minutes"] if self.deadline else []
        found += ["-N1-2"] if self.range else []
        found += ["-Lsolver:2"] if self.licensed else []
        found += ["--qos=single"] if self.limited else []
        return found + (["--array=0-1%1"] if self.array else [])


def draw(source: random.Random) -> Neighbours:
    """Return a job among neighbours, of any combination."""
    flag = lambda share: source.random() < share  # noqa: E731
    return Neighbours(
        typed=flag(0.7),
        form=source.choice(("gres", "gres", "gpus", "gpus-per-node")),
        partition=source.choice(("hot", "gpu", "hot,over")),
        wanted=source.choice((1, 2, 3)),
        pinned=flag(0.3),
        licensed=flag(0.3),
        limited=flag(0.3),
        array=flag(0.2),
        deadline=source.choice((0, 0, 0, 62, 600)),
        range=flag(0.15),
        full=flag(0.5),
        rival=source.choice(("", "", "gpu", "over", "cpu", "elsewhere", "licence", "qos")),
        site=source.choice(("", "", "", *SITES, "reservation", "held")),
    )


KNOWN = (
    Neighbours(),
    Neighbours(full=True),
    Neighbours(typed=False, partition="gpu"),
    Neighbours(typed=False),
    Neighbours(licensed=True, rival="licence"),
    Neighbours(full=True, rival="cpu"),
    Neighbours(pinned=True, site="drain"),
    Neighbours(full=True, site="drain"),
    Neighbours(site="maxtime"),
    Neighbours(limited=True, rival="qos"),
    Neighbours(array=True),
    Neighbours(full=True, rival="elsewhere"),
    Neighbours(partition="hot,over"),
    Neighbours(deadline=62),
    Neighbours(deadline=600),
    Neighbours(site="accounts"),
    Neighbours(site="not-qos"),
    Neighbours(site="held"),
    Neighbours(range=True, wanted=2),
    Neighbours(form="gpus"),
    Neighbours(form="gpus-per-node"),
)
"""What went wrong once, and the plain cases beside."""


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """A cluster with licences, limits, and partitions over the same nodes."""
    with running_slurm(nodes=NODES, accounting=True, further=FURTHER) as cluster:
        user = cluster.plan.user
        for words in (
            ("add", "account", "ml"),
            ("add", "qos", "single", "GrpJobs=1"),
            ("add", "user", user, "account=ml"),
            ("modify", "user", user, "set", "qos=normal,single", "defaultqos=normal"),
        ):
            cluster.run("sacctmgr", "-i", *words, check=False)
        trial = ("sbatch", "--parsable", "--hold", "--qos=single", "--wrap=true")
        cluster.until("the limit is known", lambda: bool(cluster.run(*trial, check=False)))
        yield cluster


def cleared(bed: SlurmBed) -> None:
    """Leave no job, and the site as it was."""
    bed.run("scancel", "--quiet", "-u", bed.plan.user, check=False)
    bed.until("no job is left", lambda: not bed.run("squeue", "-h"))
    bed.run("scontrol", "delete", "ReservationName=paper", check=False)
    for name in ("hot", "over", "gpu"):
        every = ("MaxTime=1-00:00:00", "MaxNodes=UNLIMITED", "AllowAccounts=ALL", "AllowQos=ALL",
                 "DenyAccounts=", "DenyQos=")  # fmt: skip
        bed.run("scontrol", "update", f"PartitionName={name}", "State=UP", *every)
    for node in NODES:
        bed.run("scontrol", "update", f"NodeName={node.name}", "State=RESUME", check=False)
    bed.until("nodes are idle", lambda: set(bed.run("sinfo", "-h", "-o", "%t").split()) == {"idle"})


def submitted(bed: SlurmBed, *options: str) -> str:
    """Submit a neighbour and wait until Slurm has looked at it."""
    job = bed.submit(*options)
    bed.until("it is looked at", lambda: said(bed, job, "%T %r") not in ("", "PENDING None"))
    return job


def said(bed: SlurmBed, job: str, form: str) -> str:
    """What squeue says of a job, '' once it is forgotten."""
    return bed.run("squeue", "-h", "-j", job, "-o", form, check=False)


def started(bed: SlurmBed, scenario: Neighbours) -> tuple[str, str]:
    """Start the job; return its number and its node."""
    cleared(bed)
    # A range of nodes begins on one of them, and finds more when it is requeued.
    fillers = [
        submitted(bed, "-pgpu", f"-w{name}", "--gres=gpu:4", f"-c{CPUS}", "-t600")
        for name in (("h2", "a1") if scenario.range else ())
    ]
    job = bed.submit(*scenario.options())
    bed.until("it runs", lambda: "RUNNING" in said(bed, job, "%T"))
    for filler in fillers:
        bed.run("scancel", filler)
    line = ("sacct", "-n", "-X", "-o", "SubmitLine", "-j", job)
    # Accounting has the job at once, and how it was submitted some seconds later.
    bed.until("it is in the accounting", lambda: bool(bed.run(*line).strip()))
    raw, node = bed.run("squeue", "-h", "-r", "-t", "R", "-j", job, "-o", "%A %N").split()[:2]
    return raw, node


def broken_promise(bed: SlurmBed, scenario: Neighbours) -> str | None:
    """Return what became of the job that was not promised, or None."""
    raw, node = started(bed, scenario)
    gpu_type = next(bed_node.gpu_type for bed_node in NODES if bed_node.name == node)
    others = [bed_node for bed_node in NODES if bed_node.gpus and bed_node.name != node]
    if scenario.full:
        for other in others:
            submitted(bed, "-pgpu", f"-w{other.name}", "--gres=gpu:4", f"-c{CPUS}", "-t600")
    rival(bed, scenario.rival, node)
    strike(bed, scenario, raw, node, others[0].name)
    before = shown(bed, raw)
    model = MODELS[gpu_type]
    wanted = proposal(
        raw,
        4,
        scenario.wanted,
        now=Configuration(gpu_model=model, gpu_count=4),
        proposed=Configuration(gpu_model=model, gpu_count=scenario.wanted),
    )
    applier = applier_of(bed, allow_requeue=True)
    try:
        change = applier.change_for(wanted, applier.look(wanted, job=None, gpus=()))
        refused = bool(applier.rehearse(change).refusals)
    except (ApplyError, ChangeRefusedError, StalePlanError):
        refused = True
    if refused:
        after = shown(bed, raw)
        return None if after[:3] == before[:3] else f"refused, and it ran on {before}, is {after}"
    answers = run_steps(applier, change)
    if {answer.outcome for answer in answers} != {StepOutcome.DONE}:
        return f"cut short: {answers[-1]}"
    state = settled(bed, raw, ("RUNNING", gpu_type, scenario.wanted))
    if state[:3] != ("RUNNING", gpu_type, scenario.wanted):
        return f"it ran on {before}, and is {state}"
    if srun := srun_fails(bed, raw):
        return f"srun in its script fails: {srun}"
    return None if scenario.rival or scenario.site else not_restored(bed, applier, change, before)


def not_restored(
    bed: SlurmBed, applier: SlurmApplier, change: Change, before: tuple[str, str, int, str]
) -> str | None:
    """Roll a change back; return what is not as it was, or None."""
    raw = dict(change.target.state)["number"]
    back = applier.change_back(change, applier.look_again(change))
    if {step.outcome for step in run_steps(applier, back)} != {StepOutcome.DONE}:
        return "the way back is cut short"
    state = settled(bed, raw, before[:3])
    seen = applier.read_back(back, done=len(back.steps))
    if state[:3] != before[:3] or seen.seen is not VerificationResult.AS_INTENDED:
        return f"rolled back, it is {state}: {seen}"
    return None


def srun_fails(bed: SlurmBed, raw: str) -> str:
    """What srun says in the environment that the batch script of a job has now, '' if it works."""
    mark = f"SLURM_JOB_ID={raw}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile
        if mark in found and str(bed.conf).encode() in b"".join(found):
            own = dict(
                text.decode().partition("=")[::2] for text in found if text.startswith(b"SLURM_")
            )
            done = subprocess.run(
                [program("srun"), "--immediate=10", "true"],
                env=bed.environment | own,
                capture_output=True,
                text=True,
                timeout=60,
            )
            return "" if done.returncode == 0 else done.stderr
    return ""


def settled(bed: SlurmBed, raw: str, wanted: tuple[str, str, int]) -> tuple[str, str, int, str]:
    """The state of a job once it is as wanted, or when the time for that is over."""
    ends = time.monotonic() + AGAIN_SECONDS
    while (state := shown(bed, raw))[:3] != wanted and time.monotonic() < ends:
        time.sleep(0.2)
    return state


def rival(bed: SlurmBed, kind: str, node: str) -> None:
    """Let somebody else wait, or run, for what the job holds or beside it."""
    options = {
        "gpu": ("-phot", f"-w{node}", "--gres=gpu:4", "-c1"),
        "over": ("-pover", f"-w{node}", "--gres=gpu:4", "-c1"),
        "cpu": ("-pgpu", f"-w{node}", f"-c{CPUS - 1}"),
        "elsewhere": ("-pcpu", f"-c{CPUS}"),
        "licence": ("-pcpu", "-Lsolver:2", "-c1"),
        "qos": ("-pgpu", "--qos=single", "-c1"),
    }
    if kind and not (node == "a1" and kind in ("gpu", "over")):
        submitted(bed, *options[kind], "-t600")


def strike(bed: SlurmBed, scenario: Neighbours, raw: str, node: str, other: str) -> None:
    """Let the site change."""
    if scenario.site == "held":
        bed.run("scontrol", "hold", raw)
    elif scenario.site == "reservation":
        bed.run(
            "scontrol", "create", "reservation", "ReservationName=paper", "StartTime=now+20minutes",
            "Duration=600", f"Nodes={node}", "Flags=MAINT,IGNORE_JOBS", f"Users={bed.plan.user}",
        )  # fmt: skip
    elif scenario.site:
        for partition in scenario.partition.split(","):
            names = {"node": node, "other": other, "partition": partition}
            words = [word.format(**names) for word in SITES[scenario.site]]
            bed.run("scontrol", "update", *words)


def shown(bed: SlurmBed, raw: str) -> tuple[str, str, int, str]:
    """The state of a job by squeue: word, type and number of the GPUs it holds, reason."""
    lines = bed.run("scontrol", "-o", "-d", "show", "job", raw, check=False).splitlines()
    # The number of an array is that of one of its tasks, too: the others come with it.
    text = next((line for line in lines if line.startswith(f"JobId={raw} ")), "")
    fields = dict(part.partition("=")[::2] for part in text.split() if "=" in part)
    state, node = fields.get("JobState", "gone"), fields.get("NodeList", "")
    gpu_type = next((bed_node.gpu_type for bed_node in NODES if bed_node.name == node), "")
    # From 23.02 on it is AllocTRES once the job runs.
    listed = fields.get("TRES") or fields.get("AllocTRES", "")
    tres = dict(part.partition("=")[::2] for part in listed.split(","))
    held = int(text.split("gres/gpu=")[1].split(",")[0].split()[0]) if "gres/gpu" in tres else 0
    return state, gpu_type, held, fields.get("Reason", "")


def test_a_requeued_job_runs_again_or_is_left_alone(bed: SlurmBed, measured: Measured) -> None:
    """Whoever waits beside it, and whatever the site has changed since it began."""
    found = {scenario: broken_promise(bed, scenario) for scenario in KNOWN}
    assert not any(found.values()), "\n".join(f"{k}: {v}" for k, v in found.items() if v)
    run_campaign(
        "slurm requeues",
        draw,
        lambda scenario: broken_promise(bed, scenario),
        default=3,
        measured=measured,
    )
    cleared(bed)


def test_the_plain_case_is_requeued(bed: SlurmBed) -> None:
    """The campaign would hold if everything was refused."""
    known = {
        Neighbours(): 2,
        Neighbours(typed=False): 2,
        Neighbours(full=True, rival="elsewhere"): 1,
    }
    for scenario, requeues in known.items():
        assert broken_promise(bed, scenario) is None
        job = bed.run("squeue", "-h", "-p", "hot", "-o", "%A").split()[0]
        assert f"Restarts={requeues} " in bed.run("scontrol", "-o", "show", "job", job)
    cleared(bed)
