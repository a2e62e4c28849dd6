"""Feasible changes of a job for an applier, by its scheduler's facts: one rule for all.

The planner asks it before it offers a configuration, and an applier may ask it before it looks at
the live object, which has the last word. What a scheduler did not tell is not offered. A job that
no scheduler describes is not judged: what is proposed for it is for a person.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from data.facts.jobs import Job, JobState, Platform
from data.records.plans import Configuration

_STOPPABLE_KINDS = frozenset(
    {
        "deployment",
        "statefulset",
        "leaderworkerset",
        "job",
        "cronjob",
        "pytorchjob",
        "mpijob",
        "trainjob",
        "jobset",
        "raycluster",
        "rayjob",
    }
)
_SCALABLE_KINDS = frozenset(
    {
        "deployment",
        "statefulset",
        "job",
        "cronjob",
        "pytorchjob",
        "raycluster",
        "rayservice",
        "leaderworkerset",
    }
)
"""Kinds of Kubernetes whose number of pods can be changed while they live."""
_ROLLING_KINDS = frozenset({"deployment", "statefulset"})
"""Kinds that make their pods anew for another template."""
NO_DISRUPTIONS = "no_disruptions"
"""The fact of a job that names a PodDisruptionBudget which allows none of its pods to be ended."""
TAKERS, TAKERS_GPUS = "takers", "takers_gpus"
"""The facts of a workload for whose GPUs pods of others wait: who, and how many they ask for."""
CHECKPOINTS, CHECKPOINT_AT = "checkpoints", "checkpoint_at"
"""The facts of a job that writes checkpoints: by what sign, and when it wrote the last one."""
NODE_TASKS = "tasks_by_node"
"""The fact of a Slurm job of --ntasks-per-node, which keeps its nodes while it runs (24.11)."""
SERVER_VERSION = "server_version"
"""The fact of a Kubernetes Job: the release of its API server, which decides what may change."""
AUTOSCALERS = ("HorizontalPodAutoscaler", "Ray autoscaler", "KEDA")
"""Autoscalers, which change a workload's number of pods again and again."""
UNREAD_COUNT, UNREAD_REQUEST = "unread_count", "unread_request"
"""The facts of a workload whose number of pods, or whose request, this text, is not understood."""
_UNREAD = ((UNREAD_COUNT, "number of pods"), (UNREAD_REQUEST, "request"))
ELASTIC_KUEUE = "Kueue (elastic job)"
SCALES_TO_ZERO = "scales_to_zero"
"""The fact of a workload whose autoscaler may stop its last pod, and starts one when asked."""
"""Kueue, of a Job whose number of pods others may change: it admits them as a further workload."""
REQUEUE_NEEDED = (
    "it runs, so that Slurm has to requeue it, which apply_slurm.allow_requeue (off) or "
    "slurmrestd (apply_slurm.rest_token) does not let Trimtab do"
)
REQUEUE_TAKES = timedelta(minutes=5)
"""Until a requeued Slurm job may start: cred_expire (120 s by default), its last run's end."""
NO_NODE = "(none)"
"""Stands for the name of a required node where the rules of pods admit none."""
_RESIZES_JOBS_FROM = (1, 36)
"""A Kubernetes that lets the pods of a suspended Job ask for other GPUs, without a feature gate."""
_TYPE_FROM = (24, 11)
"""An older Slurm accepts another GPU type, and does something else."""


def kubernetes_kind(job: Job) -> str:
    """Return kind of a workload in lower case, with its group where that is not the usual one."""
    kind = job.scheduling.workload.partition("/")[0]
    parts = job.job_id.split("/")
    return (kind or (parts[1] if len(parts) == 3 else "pod")).lower()


def unit_of(job: Job) -> int:
    """Return the GPUs by which the number of a job's GPUs changes; 1 where nothing says."""
    extra = job.extra
    return whole_fact(extra, "gpus_per_unit") or whole_fact(extra, "gpus_per_pod") or 1


def counts_below(job: Job) -> tuple[int, ...]:
    """Return the smaller numbers of GPUs that are worth asking for: doublings, of whole units."""
    unit, fixed = unit_of(job), whole_fact(job.extra, "fixed_gpus") or 0
    doublings = [2**power for power in range(7)]
    counts = {*doublings, *(fixed + unit * units for units in doublings)}
    return tuple(sorted(count for count in counts if count < job.gpu_count))


def change_refusal(job: Job) -> str:
    """Return the reason why no change at all reaches a job, '' when one may."""
    if job.platform is Platform.SLURM and "het_job" in job.extra:
        return "it is a component of a heterogeneous job: its components start and end together"
    return ""


def configuration_refusal(
    job: Job, proposed: Configuration, *, may_requeue: bool = True, behind_others: bool = False
) -> str:
    """Return the reason why no applier can bring a job to a configuration, '' when one can.

    A power cap leaves the job's own object alone. `may_requeue`: Slurm jobs that
    run may be requeued to change them; `behind_others`: even while others wait for their nodes.
    """
    if job.scheduler is None or proposed.power_cap_watts is not None:
        return ""
    if job.platform is Platform.KUBERNETES:
        return _on_kubernetes(job, proposed)
    if job.platform is Platform.SLURM:
        why = change_refusal(job) or _strands(job, proposed) or _on_slurm(job, proposed)
        return why or _in_its_state(
            job, proposed, may_requeue=may_requeue, behind_others=behind_others
        )
    return ""


def _strands(job: Job, proposed: Configuration) -> str:
    """Return the jobs that would start or wait for ever if a job was ended, '' when none."""
    waiting = job.extra.get("dependents", "")
    return f"jobs wait for its end: {waiting}" if waiting and proposed.gpu_count == 0 else ""


def delay_refusal(job: Job) -> str:
    """Return the reason why no applier can put off a job, '' when one can."""
    # A Kubernetes Job that goes on after a pause counts its deadline anew.
    if job.platform is Platform.SLURM and job.extra.get("deadline_at"):
        return "its deadline stands while it waits"
    return "Slurm starts only a job that waits later" if runs_in_slurm(job) else ""


def runs_in_slurm(job: Job) -> bool:
    """Return whether Slurm runs a job, so that all but fewer nodes takes a requeue."""
    state = job.scheduling.state
    return job.platform is Platform.SLURM and state in (JobState.RUNNING, JobState.SUSPENDED)


def has_named_nodes(job: Job) -> bool:
    """Return whether a job names the nodes of its model that it may run on: no plan moves it.

    A Slurm job that asked for nodes by name, pods with a nodeSelector or a required affinity.
    """
    return not {"required_nodes", "bound_to"}.isdisjoint(job.extra)


def required_nodes(job: Job) -> frozenset[str]:
    """Return the nodes on which alone a job may run, by its scheduler's names; empty where any.

    A Slurm job that asks for more nodes than it names may take others beside them; of Kubernetes
    those whose pods have no node yet are told.
    """
    extra = job.extra
    names = frozenset(filter(None, extra.get("required_nodes", "").split(",")))
    return names if (whole_fact(extra, "nodes_requested") or 1) <= len(names) else frozenset()


def _in_its_state(
    job: Job, proposed: Configuration, *, may_requeue: bool, behind_others: bool
) -> str:
    """Return the reason why a Slurm job's state does not let it change, '' when it does."""
    if not runs_in_slurm(job) or proposed.gpu_count == 0 or _fewer_nodes(job, proposed):
        return ""
    if job.scheduling.state is JobState.SUSPENDED:
        return "it is suspended, and Slurm requeues only a job that runs"
    return requeue_refusal(job, may_requeue=may_requeue, behind_others=behind_others)


def requeue_refusal(job: Job, *, may_requeue: bool, behind_others: bool) -> str:
    """Return the reason not to requeue a running Slurm job to change or move it, '' without one."""
    if not may_requeue:
        return REQUEUE_NEEDED
    if _misses_its_deadline(job):
        return (
            "requeued, its time limit would no longer fit before its deadline: Slurm would end it"
        )
    return restart_refusal(job.extra, behind_others=behind_others)


def _misses_its_deadline(job: Job) -> bool:
    facts = job.scheduling
    deadline, limit = dict(facts.extra).get("deadline_at"), facts.time_limit_seconds
    if not deadline or limit is None:
        return False
    starts = job.last_seen_at + REQUEUE_TAKES
    return starts + timedelta(seconds=limit) > datetime.fromisoformat(deadline)


def restart_refusal(facts: Mapping[str, str], *, behind_others: bool) -> str:
    """Return the reason why a running Slurm job with these facts might start again differently.

    `behind_others`: it may wait.
    """
    if types := facts.get("untyped"):
        return f"it names no GPU type, and requeued it may start on {types}"
    waiting = facts.get("waiting", "")
    if not waiting or behind_others:
        return ""
    return (
        f"requeued, it might not start again soon: {waiting}; "
        "apply_slurm.requeue_behind_others allows it"
    )


def _fewer_nodes(job: Job, proposed: Configuration) -> bool:
    """Return whether the change is to give up whole nodes, which a running job does in place."""
    extra, count = job.extra, proposed.gpu_count
    nodes = whole_fact(extra, "nodes_requested") or 0
    if extra.get("gres_per") != "node" or not nodes or job.gpu_count % nodes or NODE_TASKS in extra:
        return False
    each = job.gpu_count // nodes
    return _same_devices(job, proposed) and count % each == 0 and count < job.gpu_count


def nodes_apart(job: Job, proposed: Configuration) -> int:
    """Return the nodes on which a Slurm job has equal parts of a configuration, 0 of other jobs."""
    if job.platform is not Platform.SLURM:
        return 0
    nodes = whole_fact(job.extra, "nodes_requested") or 1
    if runs_in_slurm(job) and _fewer_nodes(job, proposed):
        return nodes * proposed.gpu_count // job.gpu_count
    return nodes


def _on_kubernetes(job: Job, proposed: Configuration) -> str:
    kind, count = kubernetes_kind(job), whole_fact(job.extra, "wanted_gpus")
    unread = [(what, job.extra[fact]) for fact, what in _UNREAD if fact in job.extra]
    if unread:
        return "its {}, {!r}, is not understood".format(*unread[0])
    if count is not None and count != job.gpu_count:
        return f"it asks for {count} GPUs and its pods hold {job.gpu_count}: they must agree first"
    extra = job.extra
    if proposed.gpu_count == 0:
        if kind in _STOPPABLE_KINDS:
            return extra.get("deleted_when_stopped") or _below_floor(job, kind, 0)
        return f"a {kind} cannot be stopped and kept: delete it by hand once its owner agrees"
    if _same_devices(job, proposed):
        if proposed.gpu_count < job.gpu_count and (why := _no_fewer(job, proposed.gpu_count)):
            return why
        if _counts(job, kind, proposed.gpu_count):
            return ""
        why = _of_template(job, kind, proposed.gpu_count) or _taken_first(
            job, kind, proposed.gpu_count
        )
        no = f"no number of its pods gives {proposed.gpu_count} GPUs"
        no = _not_so_many_pods(job, kind, proposed.gpu_count) or no
        return why and f"{no}, and {why}"
    if proposed.gpu_count != job.gpu_count:
        return "another kind of GPU and another number of them are two changes"
    if proposed.gpu_model in extra.get("closed_models", "").split(", "):
        return f"its nodeSelector or affinity keeps its pods off every node of {proposed.gpu_model}"
    return _of_template(job, kind, proposed.gpu_count)


def _taken_first(job: Job, kind: str, count: int) -> str:
    """Return the reason that others take what a pod frees before its successor, '' if both fit."""
    unit = _unit(job, kind)
    others = whole_fact(job.extra, TAKERS_GPUS) or 0
    if not unit or not others or count * unit // job.gpu_count + min(others, unit) <= unit:
        return ""
    return (
        f"a pod that ends for a new one frees its GPUs first, and others wait for such "
        f"({job.extra.get(TAKERS, '')}): its successor would wait instead"
    )


def _no_fewer(job: Job, count: int) -> str:
    """Return the reason why a workload makes nothing of fewer GPUs of its kind, '' if it may."""
    extra = job.extra
    if (processes := whole_fact(extra, "named_processes")) and count < processes <= job.gpu_count:
        return f"its command starts {processes} processes, one for each GPU: with fewer they fail"
    return ""


def _counts(job: Job, kind: str, count: int) -> bool:
    """Return whether another number of pods alone gives so many GPUs."""
    extra = job.extra
    unit, fixed = _unit(job, kind), whole_fact(extra, "fixed_gpus") or 0
    if kind not in _SCALABLE_KINDS or not unit or count <= fixed or (count - fixed) % unit:
        return False
    if _not_so_many_pods(job, kind, count):
        return False
    units = (count - fixed) // unit
    low, high = whole_fact(extra, "min_replicas"), whole_fact(extra, "max_replicas")
    if kind == "pytorchjob" and low is None and high is None:
        return False  # without elasticPolicy another number of workers breaks WORLD_SIZE
    low = max(low or 1, whole_fact(extra, "named_pods") or 0)
    return low <= units and (high is None or units <= high)


def _not_so_many_pods(job: Job, kind: str, count: int) -> str:
    """Return the reason why another number of pods harms a job or its owner's aims, '' if none."""
    extra = job.extra
    fewer = extra.get("fixed_work", "") if count < job.gpu_count else ""
    return fewer or extra.get("own_shares", "") or _below_floor(job, kind, count)


def _below_floor(job: Job, kind: str, count: int) -> str:
    """Return the budget that wants more pods than a count of GPUs gives, '' where none does."""
    extra = job.extra
    least = whole_fact(extra, "pods_floor") or 0
    if count >= job.gpu_count or count // (_unit(job, kind) or job.gpu_count) >= least:
        return ""
    return f"its PodDisruptionBudget {extra.get('pods_floor_by', '')} wants at least {least} pods"


def has_same_pods(job: Job, count: int) -> bool:
    """Return whether a workload of Kubernetes has so many GPUs with as many pods as now.

    Its pods then ask for the CPUs and memory of now.
    """
    if job.platform is not Platform.KUBERNETES:
        return False
    return count == job.gpu_count or not _counts(job, kubernetes_kind(job), count)


def _unit(job: Job, kind: str) -> int:
    """Return the GPUs of one unit, 0 where the scheduler did not say."""
    extra = job.extra
    gpus = whole_fact(extra, "gpus_per_unit")
    if gpus is None and kind in (*_ROLLING_KINDS, "job", "cronjob"):
        gpus = whole_fact(extra, "gpus_per_pod")
    return gpus or 0


def _of_template(job: Job, kind: str, count: int) -> str:
    """Return the reason why the GPUs of each pod cannot be changed, '' when they can."""
    extra = job.extra
    resumes = kind == "job" and release_of(extra.get(SERVER_VERSION, "")) >= _RESIZES_JOBS_FROM
    if kind not in _ROLLING_KINDS and not resumes:
        return f"a {kind} makes no pods anew for another template" + " before 1.36" * (
            kind == "job"
        )
    if extra.get("pods_stay"):
        return extra["pods_stay"]
    unit, containers = _unit(job, kind), whole_fact(extra, "gpu_containers")
    if not unit or containers is None:
        return "its pods' containers were not told"
    if containers != 1:
        return f"{containers} containers of each pod ask for GPUs"
    pods, rest = divmod(job.gpu_count, unit)
    if rest or not pods or count % pods:
        return f"{count} GPUs do not divide by its {pods} pods"
    gpus = whole_fact(extra, "named_gpus") or 0
    if count // pods < gpus <= unit:
        return f"its command names {gpus} GPUs for each pod: with fewer it would fail"
    return ""


def _on_slurm(job: Job, proposed: Configuration) -> str:
    extra = job.extra
    if proposed.gpu_count == 0:
        return ""
    if fixed := extra.get("fixed_size"):
        return fixed
    if "array_job" in extra:
        return "it is a task of an array: its size is that of all its tasks"
    if extra.get("gres_per") == "socket":
        return "it asks for GPUs by socket, which no Slurm changes safely"
    if extra.get("gres_per") in ("job", "task"):
        return "it asks with --gpus or --gpus-per-task, which its script keeps for srun"
    same = _same_devices(job, proposed)
    if not same and not extra.get("requested_gpu_type"):
        return "it names no GPU type, and Slurm refuses to mix requests with and without one"
    if not same and release_of(extra.get("slurm_release", "")) < _TYPE_FROM:
        return "Slurm before 24.11 cannot change a GPU type"
    return _slurm_count(job, extra, proposed.gpu_count, same=same)


def _slurm_count(job: Job, extra: Mapping[str, str], count: int, *, same: bool) -> str:
    """Return the reason why a job cannot ask for so many GPUs in its own way, '' when it can."""
    per, nodes = extra.get("gres_per", ""), whole_fact(extra, "nodes_requested") or 0
    each = whole_fact(extra, "requested_gpus") or 0
    if per == "node" and nodes and job.gpu_count % nodes == 0:
        each = job.gpu_count // nodes
        fits = count % nodes == 0 or (same and count % each == 0 and count < job.gpu_count)
        return "" if fits else f"{count} GPUs are no even number on each of {nodes} nodes"
    return "Slurm does not say how it asks for GPUs"


def release_of(text: str) -> tuple[int, int]:
    """Return a release such as 24.11 or 1.36 as numbers, (0, 0) when it is not told."""
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def _same_devices(job: Job, proposed: Configuration) -> bool:
    return (job.gpu_model, job.mig_profile) == (proposed.gpu_model, proposed.mig_profile)


def whole_fact(extra: Mapping[str, str], name: str) -> int | None:
    """Return a fact that is a whole number, None when it is none."""
    text = extra.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
