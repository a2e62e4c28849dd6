"""GPU limits that Slurm's controller enforces: those of QOS and associations, and their use.

The limits come from `sacctmgr`, the use from the controller (`scontrol show assoc_mgr`), joined by
the numbers of both: names may hold anything.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from collectors.slurm.records import SlurmJob
from collectors.slurm.values import number_of, text_of
from data.base.errors import CollectorError, scrub
from data.facts.quotas import PARTITION_QOS, Quota, QuotaKind

_QOS = ("ID", "Priority", "GrpTRES", "MaxTRESPerUser", "MaxTRESPerAccount", "MaxTRESPerJob",
        "Preempt", "Name")  # fmt: skip
_ASSOCIATION = ("ID", "Fairshare", "GrpTRES", "MaxTRES", "Partition", "ParentName", "User",
                "Account")  # fmt: skip
"""Fields of `sacctmgr -P`: names last."""
_ENFORCED = frozenset({"limits", "safe", "all"})
_PRIVATE_DATA = frozenset({"accounts", "users", "usage"})
_LIMIT = re.compile(r"(gres/gpu(?::[^=,|]+)?)=(\d{1,9})", re.ASCII)
_USE = re.compile(r"(gres/gpu(?::[^=,]+)?)=(?:N|\d+)\((\d{1,9})\)", re.ASCII)
_NUMBER_OF = {
    "qos": re.compile(r"QOS=.*\((\d+)\) UsageRaw=", re.ASCII),
    "association": re.compile(r"ClusterName=.* ID=(\d+) SharesRaw/", re.ASCII),
}
_COUNTS = re.compile(r" GrpJobs=\w+\((\d+)\) .*? GrpSubmitJobs=\w+\((\d+)\)", re.ASCII)
_GROUP = re.compile(r" GrpTRES=(\S*) ")
_LIMIT_SECTIONS = {
    "account": re.compile(r" Account Limits=(.*?)(?: User Limits=|$)"),
    "user": re.compile(r" User Limits=(.*)"),
}
_ONE = re.compile(r" (\S+?)(?:\(\d+\))?=\{[^}]*?\bMaxTRESP[AU]=([^ }]*)")
"""A name with its use: of a user a number, from 24.11 on a name with its number behind it."""

_PARTITION = re.compile(r"PartitionName=(\S+) .*? QoS=(\S+)")

Ask = Callable[..., str]
"""Runs a command with arguments and returns what it says. Errors: CollectorError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """The present use of a QOS or an association by the controller: GPUs by TRES, and jobs.

    `each` is the use of the user and the account that were asked about, by those words.
    """

    gpus: Mapping[str, float] = field(default_factory=dict)
    each: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    running: int | None = None
    pending: int | None = None


def qos_of_partitions(ask: Ask) -> dict[str, str]:
    """Return the QOS that limits all jobs of a partition, by partition. Errors: CollectorError."""
    lines = ask("scontrol", "--oneliner", "show", "partitions").splitlines()
    matches = filter(None, map(_PARTITION.match, lines))
    return {match[1]: match[2] for match in matches if match[2] not in ("N/A", "(null)")}


def with_partition_qos(jobs: Iterable[SlurmJob], qos: Mapping[str, str]) -> tuple[SlurmJob, ...]:
    """Return the jobs with the QOS of their partitions as a fact, comma-separated."""
    results = []
    for job in jobs:
        names = ",".join(
            dict.fromkeys(qos[part] for part in job.partition.split(",") if part in qos)
        )
        extra = (*job.extra, (PARTITION_QOS, names)) if names else job.extra
        results.append(replace(job, extra=extra))
    return tuple(results)


def quotas_of_job(
    quotas: Iterable[Quota], job: SlurmJob, ask: Ask, cluster: str
) -> tuple[Quota, ...]:
    """Return the limits of a job's QOS, of its partitions', user, account and accounts above it.

    An account without limits has no row of its own, so that its parent is asked for here.
    Errors: CollectorError.
    """
    associations = _rows(ask, _ASSOCIATION, Counter(), "assoc", f"cluster={cluster}")
    parents = {row["Account"]: row["ParentName"] for row in associations if not row["User"]}
    accounts, account = set[str](), job.account
    while account and account not in accounts:
        accounts.add(account)
        account = parents.get(account, "")
    qos = qos_of_partitions(ask)
    queues = {
        QuotaKind.QOS: {job.qos, *(qos.get(name, "") for name in job.partition.split(","))},
        QuotaKind.ACCOUNT: accounts,
        QuotaKind.USER: {
            f"{job.account}/{job.user}{of}"
            for of in ("", *(f"/{name}" for name in job.partition.split(",")))
        },
    }
    types = {"", *(gpu.gpu_type for gpu in job.gpus)}
    return tuple(
        quota
        for quota in quotas
        if quota.queue in queues[quota.kind] and quota.resource.partition(":")[2] in types
    )


def slurm_quotas(
    ask: Ask,
    configuration: Mapping[str, str],
    *,
    sees_all: Callable[[], bool],
    now: datetime,
    dropped: Counter[str],
    whose: SlurmJob | None = None,
) -> tuple[tuple[Quota, ...] | None, tuple[str, ...]]:
    """Return the limits on GPUs that are enforced, and warnings; None where they are hidden.

    None are enforced without slurmdbd, or without `limits` in AccountingStorageEnforce. Rows that
    cannot be read are counted in `dropped`. The use of a limit for each user or account is that of
    `whose` user and account, else unknown.
    """
    if not _words(configuration, "AccountingStorageEnforce") & _ENFORCED:
        return (), ()
    hidden = sorted(_words(configuration, "PrivateData") & _PRIVATE_DATA)
    if hidden and not sees_all():
        return None, (f"limits of QOS and accounts: PrivateData hides {', '.join(hidden)}",)
    cluster = configuration.get("ClusterName", "")
    try:
        qos = _rows(ask, _QOS, dropped, "qos")
        associations = _rows(ask, _ASSOCIATION, dropped, "assoc", f"cluster={cluster}")
    except CollectorError as error:
        return None, (f"limits of QOS and accounts are not visible: {error}",)
    uses: dict[tuple[str, str], _Use] = {}
    warnings: tuple[str, ...] = ()
    try:
        state = ask("scontrol", "--oneliner", "show", "assoc_mgr", "flags=qos,assoc")
        uses = dict(_uses(state, _names_of(whose, state)))
    except CollectorError as error:
        warnings = (f"the use of limits of QOS and accounts is not visible: {error}",)
    read = [quota for row in qos for quota in _of_qos(row, uses, now)]
    read += _of_associations(associations, uses, now)
    unique = {quota.key: quota for quota in read}
    if len(unique) < len(read):
        dropped["repeated-quota"] += len(read) - len(unique)
    return tuple(unique.values()), warnings


def _words(configuration: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(configuration.get(name, "").replace(" ", "").casefold().split(","))


def _rows(
    ask: Ask, fields: tuple[str, ...], dropped: Counter[str], *what: str
) -> list[dict[str, str]]:
    """Return the rows of sacctmgr. No separator is safe in all names: such rows are dropped."""
    text = ask("sacctmgr", "--parsable2", "--noheader", "show", *what, f"format={','.join(fields)}")
    lines = [line.split("|") for line in text.split("\n") if line]
    rows = [dict(zip(fields, line, strict=True)) for line in lines if len(line) == len(fields)]
    if len(rows) < len(lines):
        dropped["unreadable-quota"] += len(lines) - len(rows)
    return rows


def _names_of(job: SlurmJob | None, state: str) -> dict[str, tuple[str, ...]]:
    """Return the account and the user of a job as limits name them: a user also by number."""
    if job is None:
        return {}
    number = re.search(rf" UserName={re.escape(job.user)}\((\d+)\) ", state)
    return {"account": (job.account,), "user": (job.user, *(number.groups() if number else ()))}


def _uses(
    output: str, names: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[tuple[str, str], _Use]]:
    """Yield ((qos or association, its number), use) of what the controller shows line by line."""
    for line in output.splitlines():
        for kind, number_in in _NUMBER_OF.items():
            number, group = number_in.match(line), _GROUP.search(line)
            if number is None or group is None:
                continue
            jobs = _COUNTS.search(line)
            running, submitted = (int(jobs[1]), int(jobs[2])) if jobs else (None, None)
            yield (
                (kind, number[1]),
                _Use(
                    gpus={tres: float(used) for tres, used in _USE.findall(group[1])},
                    running=running,
                    pending=None if running is None or submitted is None else submitted - running,
                    each=_use_of_each(line, names),
                ),
            )


def _use_of_each(line: str, names: Mapping[str, tuple[str, ...]]) -> dict[str, Mapping[str, float]]:
    """Return the GPUs in use by TRES under a QOS, of the user and of the account of these names."""
    return {
        per: {tres: float(used) for tres, used in _USE.findall(text)}
        for per, of_names in names.items()
        for limits in _LIMIT_SECTIONS[per].findall(line)
        for name, text in _ONE.findall(limits)
        if name in of_names
    }


def _limits(
    limits: str, *, kind: QuotaKind, queue: str, per: str, use: _Use, now: datetime
) -> Iterator[Quota]:
    """Yield a row of each GPU TRES in a limit. What Slurm caps borrows nothing."""
    for tres, count in _LIMIT.findall(limits):
        yield Quota(
            source="",
            kind=kind,
            queue=queue,
            per=per,
            resource=scrub(tres),
            nominal=float(count),
            borrowing_limit=0.0,
            lending_limit=None,
            used=use.each.get(per, {}).get(tres) if per else use.gpus.get(tres),
            admitted=None if per else use.running,
            pending=None if per else use.pending,
            observed_at=now,
        )


def _of_qos(
    row: Mapping[str, str], uses: Mapping[tuple[str, str], _Use], now: datetime
) -> Iterator[Quota]:
    use, name = uses.get(("qos", row["ID"]), _Use()), scrub(text_of(row["Name"]))
    priority = number_of(row["Priority"])
    for limits, per in (
        ("GrpTRES", ""),
        ("MaxTRESPerUser", "user"),
        ("MaxTRESPerAccount", "account"),
        ("MaxTRESPerJob", "job"),
    ):
        for quota in _limits(
            row[limits], kind=QuotaKind.QOS, queue=name, per=per, use=use, now=now
        ):
            yield replace(
                quota,
                priority=None if priority is None else int(priority),
                preempts=scrub(text_of(row["Preempt"])),
            )


def _of_associations(
    rows: Iterable[Mapping[str, str]], uses: Mapping[tuple[str, str], _Use], now: datetime
) -> Iterator[Quota]:
    """Yield the limits of accounts, and of users where their account does not have them too."""
    rows = tuple(rows)
    per_job = {row["Account"]: row["MaxTRES"] for row in rows if not row["User"]}
    for row in rows:
        account, user = scrub(row["Account"]), scrub(row["User"])
        differs = (row["MaxTRES"] != per_job.get(row["Account"])) if user else True
        for limits, per in ((row["GrpTRES"], ""), (row["MaxTRES"] if differs else "", "job")):
            for quota in _limits(
                limits,
                kind=QuotaKind.USER if user else QuotaKind.ACCOUNT,
                queue="/".join(filter(None, (account, user, scrub(row["Partition"])))),
                per=per,
                use=uses.get(("association", row["ID"]), _Use()),
                now=now,
            ):
                parent = account if user else scrub(row["ParentName"])
                yield replace(quota, weight=number_of(row["Fairshare"]), parent=parent)
