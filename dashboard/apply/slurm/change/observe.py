"""Target of a change to a job: the fresh values that it depends on, under stable names."""

from collections.abc import Iterable

from collectors.slurm.gpu_models import ModelNames
from collectors.slurm.queue_facts import DEPENDENTS
from collectors.slurm.records import SlurmJob, SlurmNode
from dashboard.apply.slurm.change.moves import type_key
from dashboard.apply.slurm.client.client import JobReading
from dashboard.apply.slurm.client.job_state import JobFacts
from data.base.errors import ChangeRefusedError, StalePlanError
from data.facts.jobs import Job, JobState
from data.records.changes import Change, Target
from data.records.recommendations import Recommendation

KIND = "slurm-job"
_ALWAYS = ("interface", "number", "address", "submitted", "user", "Restarts")
_SIZE = (
    "JobState", "Partition", "Features", "Gres", "TresPerJob", "TresPerTask", "TresPerSocket",
    "NumNodes", "NumTasks", "Hold", "gpus", "nodes", "batch_host", "batch", "requeue",
    "nodes_asked", "TRES", "whole_nodes", "cpus_by_gpu", "tasks_by_node",
)  # fmt: skip
PREVIOUS_STATE_KEY = "was"
"""The key under which the state of a way back holds what the job was before the change."""


def keys_for(recommendation: Recommendation) -> tuple[str, ...]:
    """Return the names of what a change of this kind touches or depends on.

    A time limit holds whether the job waits or runs, so there its state may move on.
    """
    action = recommendation.action
    if action.spec.resizes:
        proposed = recommendation.proposed
        return (*_ALWAYS, *_SIZE, type_key(proposed.gpu_model, proposed.mig_profile))
    if action.spec.pauses:
        return (*_ALWAYS, "JobState", "StartTime", "Hold")
    if action.spec.takes_all:
        return (*_ALWAYS, "JobState", "gpus", "nodes")
    return (*_ALWAYS, "TimeLimit")


def job_target(
    reading: JobReading,
    keys: Iterable[str],
    *,
    name: str,
    nodes: Iterable[SlurmNode],
    models: ModelNames,
) -> Target:
    """Return the target of a job with these keys."""
    facts = reading.facts
    nodes = tuple(nodes)
    return Target(
        kind=KIND,
        name=name,
        identity=f"{facts.job.raw_id}@{facts.submitted}",
        state=tuple(
            (key, _value(key, reading, nodes, models)) for key in keys if key != PREVIOUS_STATE_KEY
        ),
    )


def _value(key: str, reading: JobReading, nodes: tuple[SlurmNode, ...], models: ModelNames) -> str:
    facts = reading.facts
    if key.startswith("type of "):
        model, _, profile = key.removeprefix("type of ").partition("|")
        return _gres_type(model, profile, facts, nodes, models)
    values = {
        "interface": reading.interface,
        "number": facts.job.raw_id,
        "address": facts.address,
        "submitted": facts.submitted,
        "user": facts.job.user,
        "TresPerSocket": dict(facts.gpus_by).get("socket", ""),
        "nodes": ",".join(facts.job.nodes),
        "batch_host": facts.batch_host,
        "batch": "yes" if facts.is_batch else "no",
        "requeue": "yes" if facts.may_requeue else "no",
        "whole_nodes": "yes" if facts.takes_whole_nodes else "no",
        "cpus_by_gpu": "yes" if facts.cpus_per_gpu else "no",
        "tasks_by_node": "yes" if facts.tasks_by_node else "no",
    }
    return values[key] if key in values else facts.value(key)


def _gres_type(
    model: str, profile: str, facts: JobFacts, nodes: tuple[SlurmNode, ...], models: ModelNames
) -> str:
    """Return the site's own word for a model, from the nodes of the job's partitions, then of all.

    '' when no type or several stand for it. The job's own type wins where it does.
    """
    partitions = set(facts.job.partition.split(","))
    local = [node for node in nodes if partitions & set(node.partitions)]
    kinds = {gpu.gpu_type for gpu in facts.job.gpus}
    for around in (local, nodes):
        types = {
            entry.gpu_type
            for node in around
            for entry in node.gpus
            if entry.gpu_type and models.of_type(entry.gpu_type) == (model, profile)
        }
        if types:
            best = types & kinds or types
            return best.pop() if len(best) == 1 else ""
    return ""


def require_single_change(facts: JobFacts, number: str) -> None:
    """Refuse jobs that no single change reaches. Errors: ChangeRefusedError, StalePlanError."""
    if facts.is_het:
        raise ChangeRefusedError(
            f"Slurm job {number} is a component of a heterogeneous job",
            "Change it by hand: its components start and end together.",
        )
    if facts.array_state == "mixed":
        raise ChangeRefusedError(
            f"Slurm job {number} stands for the waiting tasks of an array of which others run",
            "Change it by hand: one command would reach some tasks and not others.",
        )
    if facts.state in ("OVER", "COMPLETING"):
        raise StalePlanError(
            f"Slurm job {number} has ended or is ending ({facts.job.state_word or facts.state})",
            "Run a new cycle.",
        )


def require_no_dependents(number: str, queue: Iterable[SlurmJob]) -> None:
    """Refuse to end a job that others wait for. Errors: ChangeRefusedError, which names them."""
    waiting = [dict(job.extra).get(DEPENDENTS, "") for job in queue if job.raw_id == number]
    if any(waiting):
        raise ChangeRefusedError(
            f"jobs wait for the end of Slurm job {number}: {', '.join(waiting)}; cancelling it "
            "would start them or leave them waiting for ever",
            "Ask their owners; then cancel it by hand.",
        )


def facts_in_queue(queue: Iterable[SlurmJob], reading: JobReading) -> dict[str, str]:
    """Return the facts of a job that depend on the rest of the queue (`queue_facts.py`)."""
    number = reading.facts.job.raw_id
    return {name: value for job in queue if job.raw_id == number for name, value in job.extra}


def require_restorable(change: Change) -> None:
    """Refuse to give nodes back to a job that had got more than it asked for at least.

    The most that it asked for is not shown while it runs. Errors: ChangeRefusedError.
    """
    was = dict(change.target.state)
    least, had = was.get("nodes_asked", ""), was.get("NumNodes", "")
    if (
        "-" not in had
        and least not in ("", had)
        and any(step.field == "NumNodes" for step in change.steps)
    ):
        raise ChangeRefusedError(
            f"the job asked for {least} nodes or more and ran on {had}: Slurm does not say what it "
            "asked for",
            "Ask its owner to submit it again.",
        )


def require_planned_job(
    facts: JobFacts, recommendation: Recommendation, job: Job | None, models: ModelNames
) -> None:
    """Refuse a job that is another one, or another size, than the plan saw.

    A number is used again after a while, and a requeue gives a job another submit time: in both
    cases the plan was made for something else. Errors: StalePlanError.
    """
    number, submitted = facts.job.raw_id, facts.job.submitted_at
    again = "Run a new cycle and approve its recommendation."
    if submitted is None:
        raise StalePlanError(f"Slurm does not say when job {number} was submitted", again)
    stored = None if job is None else job.scheduling.submitted_at
    if submitted > recommendation.created_at or (stored is not None and stored != submitted):
        raise StalePlanError(
            f"Slurm job {number} was submitted or requeued at {submitted:%Y-%m-%d %H:%M:%S} UTC, "
            "after the plan saw it",
            again,
        )
    state = JobState.UNKNOWN if job is None else job.scheduling.state
    if (
        "JobState" in keys_for(recommendation)
        and state is not JobState.UNKNOWN
        and state is not facts.job.state
    ):
        raise StalePlanError(
            f"Slurm job {number} is {facts.job.state} now, the plan saw it {state}", again
        )
    _require_its_limit(facts, job)
    now = recommendation.now
    count = sum(gpu.count for gpu in facts.job.gpus)
    model = models.of_job(facts.job)
    # Slurm knows no model of a job that names no type and waits where there are several, and a
    # site's own word for one says nothing of which it is: the plan has the model from telemetry.
    same_model = not models.is_known(model.name) or (model.name, model.mig_profile) == (
        now.gpu_model,
        now.mig_profile,
    )
    if count != now.gpu_count or not same_model:
        size = f"{count} × {model.name or 'GPUs'} {model.mig_profile}".rstrip()
        raise StalePlanError(f"Slurm job {number} has {size}, the plan saw {now.describe()}", again)


def _require_its_limit(facts: JobFacts, stored: Job | None) -> None:
    """Refuse a job that ends sooner than the plan saw: less is left to save than it promises.

    Errors: StalePlanError.
    """
    plan = None if stored is None or stored.scheduler is None else stored.scheduler
    was, limit = None if plan is None else plan.time_limit_seconds, facts.job.time_limit_seconds
    if was is not None and limit is not None and limit < was:
        raise StalePlanError(
            f"Slurm job {facts.job.raw_id} has a time limit of {limit / 60:g} min now, the plan "
            f"saw {was / 60:g} min: it saves less than was promised",
            "Run a new cycle and approve its recommendation.",
        )
