"""Slurm changes as commands that a person runs, from the same moves as the live change.

Nothing is asked here: the state of the job is what the store knows of it. What the store does not
know is assumed as it is for most jobs: it runs, asks for GPUs by node, and may be requeued.
"""

import re
import shlex
from dataclasses import replace

from collectors.slurm.records import GPU_FIELDS
from dashboard.apply.contract.applier import ChangeText
from dashboard.apply.slurm.change.moves import Move, moves_for, type_key
from dashboard.apply.slurm.change.nodes import drain_reason
from dashboard.apply.slurm.change.steps import moves_back
from dashboard.apply.slurm.client.gres_text import GresRequest, canonical_gres, gpu_request
from dashboard.apply.slurm.client.requests import COMMANDS, by_hand
from data.base.errors import ChangeRefusedError
from data.facts.fleet import Gpu
from data.facts.jobs import Job, JobState, SchedulerFacts
from data.records.plans import Configuration
from data.records.recommendations import Recommendation

_JOB_ID = re.compile(r"slurm:(\d+(?:_\d+)?(?:\+\d+)?)")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_GRES_TYPE = re.compile(r"[A-Za-z]+\d+[A-Za-z]*")
_ASSUMED_RELEASE = f"{COMMANDS} 24.11"
_OLD_RELEASES = (
    "# Slurm before 24.11 takes another GPU type, or another number of tasks, with return code 0: "
    "the job then never starts, or starts with its old GPUs. Check `scontrol --version`."
)
_STATES = {JobState.PENDING: "PENDING", JobState.SUSPENDED: "SUSPENDED"}


def slurm_job_number(job_id: str) -> str:
    """Return the Slurm job id of a job id `slurm:1234`, refusing anything else."""
    match = _JOB_ID.fullmatch(job_id)
    if match is None:
        raise ChangeRefusedError(
            f"{job_id!r} is no Slurm job id", "Expected slurm:NUMBER; change this job by hand."
        )
    return match.group(1)


def slurm_change(
    recommendation: Recommendation, gpus: tuple[Gpu, ...], job: Job | None = None
) -> ChangeText:
    """Return the commands for a Slurm job or node; `gpus` are those that the job holds.

    Errors: ChangeRefusedError where Slurm cannot make the change or a name is hostile.
    """
    header = [
        "#!/bin/sh",
        f"# {recommendation.now.describe()} -> {recommendation.proposed.describe()}",
        f"# recommendation {recommendation.digest}",
    ]
    if recommendation.action.spec.cuts:
        raise ChangeRefusedError(
            "Trimtab knows no way to cut the boards of a Slurm node", "Cut the node by hand."
        )
    if recommendation.action.spec.of_node:
        lines = _drain(recommendation)
    else:
        lines = _job_lines(recommendation, gpus, job)
    return ChangeText(
        file_name=f"{recommendation.recommendation_id}.slurm.sh",
        text="\n".join([*header, "set -eu", *lines]) + "\n",
    )


def _drain(recommendation: Recommendation) -> list[str]:
    node = dict(recommendation.details).get("node", "")
    if not _NODE.fullmatch(node):
        raise ChangeRefusedError(f"{node!r} is no name of a node", "Drain it by hand.")
    return [
        "# Jobs on the node run to their end; nothing new is placed there.",
        by_hand("drain", node, "NodeState", drain_reason(recommendation)),
        "# The way back:",
        f"#   {by_hand('resume', node, 'NodeState', '')}",
    ]


def _job_lines(recommendation: Recommendation, gpus: tuple[Gpu, ...], job: Job | None) -> list[str]:
    number = slurm_job_number(recommendation.job_id)
    state = _stored_state(recommendation, gpus, job)
    plan = moves_for(recommendation, state, allow_requeue=True)
    address = _address(number, job)
    show = f"scontrol show job {shlex.quote(address)}"
    lines = [f"# {note}" for note in plan.notes]
    lines += ["# Is the job still as the recommendation saw it?", show]
    sized = recommendation.action.spec.resizes
    if sized:
        lines.append(
            "# GPU type names are this site's GRES names: check them with `scontrol show node`."
        )
    if recommendation.now.gpu_model != recommendation.proposed.gpu_model or any(
        move.field in ("NumTasks", "TresPerTask") for move in plan.moves
    ):
        lines.append(_OLD_RELEASES)
    for move in plan.moves:
        if move.verb == "release":
            lines += _check(show, _restoring(plan.moves), address)
        lines.append(by_hand(move.verb, address, move.field, move.after))
    if plan.moves[-1].verb != "release" and plan.moves[-1].verb != "cancel":
        back = _restoring(plan.moves)
        if state["JobState"] != "PENDING":
            # Slurm gives nodes back to a waiting job alone.
            after = state | {move.field: move.after for move in plan.moves}
            back = moves_back(plan.moves, after, allow_requeue=True).moves
        lines += _check(show, back, address)
    return lines


def _restoring(moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """Return the moves that set back what waits on our hold, last first."""
    updates = [move for move in reversed(moves) if move.verb == "update" and move.before]
    return tuple(replace(move, before=move.after, after=move.before) for move in updates)


def _check(show: str, moves: tuple[Move, ...], address: str) -> list[str]:
    back = [f"#   {by_hand(move.verb, address, move.field, move.after)}" for move in moves]
    return [
        f"{show} | grep -E 'Reason=|Tres|Gres=|NumNodes=|TimeLimit=|StartTime='",
        "# Reason=BadConstraints means that no node can give this. The way back:",
        *back,
    ]


def _address(number: str, job: Job | None) -> str:
    """Return the task of an array as J_n: 22.05 ignores `scancel` of its raw number."""
    facts = dict(_facts(job).extra)
    array, task = facts.get("array_job", ""), facts.get("array_task", "")
    return f"{array}_{task}" if array.isdecimal() and task.isdecimal() else number


def _facts(job: Job | None) -> SchedulerFacts:
    return SchedulerFacts() if job is None else job.scheduling


def _stored_state(
    recommendation: Recommendation, gpus: tuple[Gpu, ...], job: Job | None
) -> dict[str, str]:
    facts = _facts(job)
    extra = dict(facts.extra)
    proposed = recommendation.proposed
    nodes = len(facts.nodes) or len({gpu.node for gpu in gpus}) or 1
    requested = extra.get("nodes_requested", "")
    where = _STATES.get(facts.state, "RUNNING")
    count = requested if where == "PENDING" and requested.isdecimal() else str(nodes)
    limit = facts.time_limit_seconds
    request = _request(recommendation.now, extra, int(count))
    return {
        "interface": _ASSUMED_RELEASE,
        "JobState": where,
        "Partition": recommendation.namespace,
        "Features": extra.get("features", ""),
        "NumNodes": f"{count}-{count}" if where == "PENDING" else count,
        "NumTasks": "1",
        "Hold": "user" if facts.reason.startswith("JobHeld") else "no",
        "TimeLimit": "" if limit is None else f"{limit / 60:g}",
        "StartTime": "",
        "Restarts": "0",
        "batch": "yes",
        "requeue": "yes",
        type_key(proposed.gpu_model, proposed.mig_profile): _guessed_type(proposed),
    } | request


def _request(now: Configuration, extra: dict[str, str], nodes: int) -> dict[str, str]:
    """Return the request of the job as it was submitted, or what most jobs would have written."""
    per, gres = extra.get("gres_per", ""), canonical_gres(extra.get("gres", ""))
    if per in GPU_FIELDS and gres:
        gpu_request(gres)
        return {GPU_FIELDS[per]: gres}
    each = -(-now.gpu_count // max(1, nodes))
    return {"Gres": GresRequest(gpu_type=_guessed_type(now), count=max(1, each)).text()}


def _guessed_type(configuration: Configuration) -> str:
    if configuration.mig_profile:
        return configuration.mig_profile
    match = _GRES_TYPE.match(configuration.gpu_model)
    return (match.group(0) if match else configuration.gpu_model).lower()
