"""Limits of QOS and accounts: as a real Slurm with slurmdbd enforces them, and hostile answers."""

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode

from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector
from collectors.slurm.quotas import slurm_quotas
from dashboard.common.quota_words import quota_words
from data.base.clock import utc_now
from data.base.errors import SourceRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import Job, JobState
from data.facts.quotas import Quota, QuotaKind, qos_of, quotas_of_jobs
from data.settings.sources import SlurmSettings

NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=8, features="h100"),
    BedNode(name="c1", features="cpu"),
)
_ENFORCE = "AccountingStorageEnforce=associations,limits,qos\nPriorityType=priority/multifactor"
HIGH = (
    "GrpTRES=gres/gpu=3,gres/gpu:h100=2,cpu=90 MaxTRESPerUser=gres/gpu=2 "
    "MaxTRESPerAccount=gres/gpu=6 MaxTRESPerJob=gres/gpu=1 Priority=100 Preempt=normal"
)
ENFORCED = {"AccountingStorageEnforce": "associations,limits,qos", "ClusterName": "bed"}
NOW = utc_now()


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """A cluster whose QOS and accounts limit GPUs, with jobs that run and wait for them."""
    with running_slurm(nodes=NODES, accounting=True, further=_ENFORCE) as running:
        me = running.plan.user
        for words in (
            "account ml GrpTRES=gres/gpu=4 fairshare=40",
            "account vision parent=ml MaxTRES=gres/gpu=2 fairshare=7",
            f"qos high {HIGH}",
            f"user {me} account=ml qos=normal,high",
            f"user {me} account=vision qos=normal",
        ):
            running.run("sacctmgr", "--immediate", "add", *words.split())
        running.run("sacctmgr", "--immediate", "add", "qos", "pi|pe", "GrpTRES=gres/gpu=1")
        known = ["scontrol", "show", "assoc_mgr"]
        running.until("the controller knows them", lambda: "Account=vision" in running.run(*known))
        for options in (
            "-A ml --qos=high --gres=gpu:h100:1",
            "-A ml --qos=high --gres=gpu:h100:1",
            "-A ml --qos=high --gres=gpu:h100:1",
            "-A vision --qos=normal --gres=gpu:h100:2",
            "-A vision --qos=normal --gres=gpu:h100:1",
        ):
            running.submit(*options.split())
        running.until("three run", lambda: list(running.states().values()).count("RUNNING") == 3)
        waiting = {"QOSMaxGRESPerUser", "QOSGrpGRES", "AssocGrpGRES"}
        running.until("two say why they wait", lambda: len(reasons(running) & waiting) == 2)
        yield running


def reasons(bed: SlurmBed) -> set[str]:
    """Return why jobs wait, in Slurm's words."""
    return set(bed.run("squeue", "-h", "-t", "PD", "-o", "%r").splitlines())


def collected_from(bed: SlurmBed) -> Collected:
    """Return what the collector gives of a bed."""
    settings = SlurmSettings(
        mode="commands", conf_file=str(bed.conf), gpu_models="h100=H100-SXM5-80GB"
    )
    now = utc_now()
    return slurm_collector(settings, load_gpu_catalogue()).collect(Window(start=now, end=now))


def of_kind(quotas: tuple[Quota, ...] | None, kind: QuotaKind) -> dict[tuple[str, ...], Quota]:
    """Return the rows of a kind by queue, per and resource."""
    return {(q.queue, q.per, q.resource): q for q in quotas or () if q.kind is kind}


def gpus_in(limits: str) -> dict[str, float]:
    """Return the GPU part of what sacctmgr prints as one limit."""
    pairs = [part.split("=") for part in limits.split(",") if part.startswith("gres/gpu")]
    return {name: float(count) for name, count in pairs}


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.parametrize(
    ("per", "limit"),
    [
        ("", "GrpTRES"),
        ("user", "MaxTRESPerUser"),
        ("account", "MaxTRESPerAccount"),
        ("job", "MaxTRESPerJob"),
    ],
)
def test_limits_of_a_qos_are_those_that_sacctmgr_shows(bed: SlurmBed, per: str, limit: str) -> None:
    """Each GPU TRES is a row; processors and memory are none."""
    said = bed.run("sacctmgr", "-P", "-n", "show", "qos", "high", f"format={limit}")
    rows = of_kind(collected_from(bed).quotas, QuotaKind.QOS)
    found = {key[2]: row.nominal for key, row in rows.items() if key[:2] == ("high", per)}
    assert found == gpus_in(said)
    assert found
    assert {row.priority for key, row in rows.items() if key[0] == "high"} == {100}
    assert {row.preempts for key, row in rows.items() if key[0] == "high"} == {"normal"}


@pytest.mark.slurm
@pytest.mark.slow
def test_the_use_of_limits_is_what_running_jobs_hold(bed: SlurmBed) -> None:
    """As squeue counts it; an account uses what its own accounts use, too."""
    held = Counter[str]()
    for line in bed.run("squeue", "-h", "-t", "R", "-o", "%a %q %b").splitlines():
        account, qos, gres = line.split()
        for queue in {account, qos, "ml"}:
            held[queue] += int(gres.rpartition(":")[2])
    quotas = collected_from(bed).quotas
    qos = of_kind(quotas, QuotaKind.QOS)
    accounts = of_kind(quotas, QuotaKind.ACCOUNT)
    assert qos["high", "", "gres/gpu"].used == held["high"] == 2
    typed = qos["high", "", "gres/gpu:h100"]
    assert (typed.used, typed.gpu_model) == (2, "H100-SXM5-80GB")
    assert accounts["ml", "", "gres/gpu"].used == held["ml"] == 4
    waiting = bed.run("squeue", "-h", "-t", "PD", "-q", "high", "-o", "%i").splitlines()
    assert qos["high", "", "gres/gpu"].pending == len(waiting) == 1
    assert qos["high", "", "gres/gpu"].admitted == 2


@pytest.mark.slurm
@pytest.mark.slow
def test_a_reason_of_slurm_names_its_limit(bed: SlurmBed) -> None:
    """For each job that waits, in the controller's own words of it."""
    told = collected_from(bed)
    words = {
        job.scheduler.reason: quota_words(job, told.quotas or ())
        for job in told.jobs
        if job.scheduler is not None and job.scheduler.state is JobState.PENDING
    }
    assert words["AssocGrpGRES"] == "account ml: 4 of 4 gres/gpu in use"
    (of_qos,) = {reason for reason in words if reason.startswith("QOS")}
    assert words[of_qos].startswith("qos high: ")
    assert "not read" not in words[of_qos]


@pytest.mark.slurm
@pytest.mark.slow
def test_accounts_have_their_limits_shares_and_parent(bed: SlurmBed) -> None:
    """What an account hands down to its users is told once."""
    quotas = collected_from(bed).quotas
    accounts = of_kind(quotas, QuotaKind.ACCOUNT)
    assert {key[:2] for key in accounts} == {("ml", ""), ("vision", "job")}
    ml, vision = accounts["ml", "", "gres/gpu"], accounts["vision", "job", "gres/gpu"]
    assert (ml.nominal, ml.weight, ml.parent) == (4, 40, "root")
    assert (vision.nominal, vision.weight, vision.parent) == (2, 7, "ml")
    assert (ml.borrowing_limit, ml.lending_limit) == (0, None)
    assert of_kind(quotas, QuotaKind.USER) == {}


@pytest.mark.slurm
@pytest.mark.slow
def test_a_name_with_the_separator_is_left_out_and_counted(bed: SlurmBed) -> None:
    """The sacctmgr of 22.05 has no other separator, and a wrong name would be worse than none."""
    told = collected_from(bed)
    assert dict(told.report.dropped)["unreadable-quota"] == 1
    assert not [q for q in told.quotas or () if "pi" in q.queue]


@pytest.mark.slurm
@pytest.mark.slow
def test_the_qos_of_a_partition_limits_its_jobs(bed: SlurmBed) -> None:
    """As the controller has it at once; without one a job has its own alone."""
    partition = bed.run("squeue", "-h", "-o", "%P").split()[0]
    assert {limiting(job) for job in collected_from(bed).jobs} == {("high",), ("normal",)}
    bed.run("scontrol", "update", f"partitionname={partition}", "qos=high")
    told = collected_from(bed)
    assert {limiting(job) for job in told.jobs} == {("high",), ("normal", "high")}
    other = [job for job in told.jobs if limiting(job) != ("high",)]
    found = quotas_of_jobs(told.quotas or (), other)
    assert {quota.queue for quota in found if quota.kind is QuotaKind.QOS} == {"high"}


def limiting(job: Job) -> tuple[str, ...]:
    """Return the QOS that limit a job."""
    assert job.scheduler is not None
    return qos_of(job.scheduler)


def answers(said: Mapping[str, str]) -> "object":
    """Return a runner of commands that says these words by the kind that is shown."""

    def ask(_command: str, *arguments: str) -> str:
        for kind, text in said.items():
            if kind in arguments:
                return text
        raise SourceRefusedError(f"no answer to {arguments}", "")

    return ask


def read(
    said: Mapping[str, str], sees_all: bool = True, **configuration: str
) -> tuple[tuple[Quota, ...] | None, tuple[str, ...], Counter[str]]:
    """Return quotas, warnings and what was dropped of such answers."""
    dropped = Counter[str]()
    quotas, warnings = slurm_quotas(
        answers(said),  # type: ignore[arg-type]
        ENFORCED | configuration,
        sees_all=lambda: sees_all,
        now=NOW,
        dropped=dropped,
    )
    return quotas, warnings, dropped


QOS = "3|0|gres/gpu=8||||"
HOSTILE = f"{QOS}|\x1b[2Jboss\n\n{QOS}|{'x' * 5000}\n4|0|gres/gpu=99999999999||||"


def test_hostile_names_are_one_short_line() -> None:
    """Control characters and length are cut; a limit beyond all sense is none."""
    quotas, warnings, dropped = read({"qos": HOSTILE, "assoc": ""})
    assert quotas is not None
    assert [(q.queue[:5], q.nominal) for q in quotas] == [("[2Jbo", 8), ("xxxxx", 8)]
    assert all(len(q.queue) <= 300 and q.queue.isprintable() for q in quotas)
    assert dropped["unreadable-quota"] == 1
    assert "use of limits" in warnings[0]


def test_use_that_is_not_told_is_unknown() -> None:
    """Never 0."""
    quotas, _warnings, _dropped = read({"qos": f"{QOS}|normal", "assoc": ""})
    assert [(q.used, q.pending) for q in quotas or ()] == [(None, None)]


def test_limits_that_nobody_enforces_are_none() -> None:
    """Without `limits` Slurm keeps them in its database alone, and sacctmgr is not asked."""
    assert read({}, AccountingStorageEnforce="associations,qos")[0] == ()
    assert read({}, AccountingStorageEnforce="none")[0] == ()


def test_what_is_hidden_is_unknown() -> None:
    """A part of the accounts would pass for all of them."""
    quotas, warnings, _dropped = read({}, sees_all=False, PrivateData="users,jobs")
    assert quotas is None
    assert "PrivateData hides users" in warnings[0]


def test_a_silent_database_is_a_warning() -> None:
    """What was read before stays."""
    quotas, warnings, _dropped = read({})
    assert quotas is None
    assert "are not visible: no answer" in warnings[0]
