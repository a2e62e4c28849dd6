"""Moves of a recommendation from the state of its target: each field, from and to. Pure.

The live change, the change file and the way back are all arranged here. A waiting job is held only
while several fields change: holding costs it its place in the queue (measured with
priority/basic). A running job's GPUs never change in place: it loses whole nodes, or it is requeued
on hold, changed while it waits, and released.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from collectors.slurm.records import COUNTS_CPUS_BY_GPU, GPU_FIELDS
from dashboard.apply.slurm.client.gres_text import TYPE_NAME, GresRequest, gpu_request, with_gpus
from dashboard.apply.slurm.client.requests import COMMANDS, release_of
from data.base.errors import ChangeRefusedError, scrub
from data.records.actions import Action
from data.records.recommendations import Recommendation

State = Mapping[str, str]
CONTROL = ("hold", "release", "requeuehold", "wait")
"""Verbs that lead to the change and away from it; they touch no value that anyone set."""

_WORD = re.compile(r"[A-Za-z0-9_.,&|*-]{1,128}")

_TYPE_CHANGES_FROM = (24, 11)
"""22.05 accepts another GPU type and the job sticks in BadConstraints; 24.11 is right."""
_KEPT_OPTIONS = {"job": "--gpus", "task": "--gpus-per-task"}
KEPT_OPTION = (
    "it was submitted with {option}, which its script's environment keeps: srun in the script "
    "would ask for the old number of GPUs and fail"
)
BY_OWNER = "Ask its owner to submit the next run with the proposed size, or to use --gres."


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One field from `before` to `after`, by `verb`."""

    verb: str
    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Moves in order, and notes for a person before them."""

    moves: tuple[Move, ...]
    notes: tuple[str, ...] = ()


def refuse(why: str, instead: str = "Change this job by hand.") -> ChangeRefusedError:
    """Return the refusal to raise."""
    return ChangeRefusedError(why, instead)


def type_key(model: str, mig_profile: str) -> str:
    """Return the key under which a state holds the gres type of a model."""
    return f"type of {model}|{mig_profile}"


def pending_nodes(value: str) -> str:
    """Return a node count as waiting jobs say it: `2` is `2-2`."""
    return value if "-" in value else f"{value}-{value}"


def same_value(field: str, one: str, other: str) -> bool:
    """Return whether two values of a field are one, however the job's state spells them."""
    if field == "NumNodes":
        return pending_nodes(one) == pending_nodes(other)
    if field == "Hold":
        return (one == "no") == (other == "no")
    return one == other


def unchanged(field: str, one: str, other: str) -> bool:
    """Return whether a requeue alone explains another value of a field.

    A job that runs shows the partition that it runs in, one that waits all that it asked for.
    """
    if field == "Partition":
        return bool({*one.split(",")} & {*other.split(",")})
    return same_value(field, one, other)


def moves_for(recommendation: Recommendation, state: State, *, allow_requeue: bool) -> Moves:
    """Return the moves of a recommendation. Errors: ChangeRefusedError."""
    action = recommendation.action
    if action.spec.resizes:
        return _resize(recommendation, state, allow_requeue)
    if action is Action.TIME_LIMIT:
        return _shorter(dict(recommendation.details).get("time_limit_seconds", ""), state)
    if action.spec.pauses:
        return _later(dict(recommendation.details).get("begin_at", ""), state)
    if action.spec.takes_all:
        return _reclaim(state)
    raise refuse(f"{action} is no change that Slurm can make", "See the recommendation's advice.")


def arranged(
    changes: tuple[tuple[str, str, str], ...], state: State, *, allow_requeue: bool
) -> Moves:
    """Return the moves that bring (field, before, after) about in the job's present state.

    Errors: ChangeRefusedError.
    """
    if all(field == "TimeLimit" for field, _before, _after in changes):
        return Moves(moves=tuple(_update(*change) for change in changes))
    where = state["JobState"]
    if where == "PENDING":
        updates = tuple(pending_update(*change) for change in changes)
        if len(updates) > 1 and state.get("Hold") == "no":
            hold = Move(verb="hold", field="Hold", before="no", after="user")
            updates = (hold, *updates, replace(hold, verb="release", before="user", after="no"))
        return Moves(moves=updates)
    if where not in ("RUNNING", "SUSPENDED"):
        raise refuse(f"the job is {where}", "Wait until it runs or waits, then run a new cycle.")
    if all(is_in_place(change) for change in changes):
        return Moves(moves=tuple(_update(*change) for change in changes), notes=(_NODE_LOSS,))
    _require_requeue(state, allow_requeue)
    restarts = int(state["Restarts"])
    return Moves(
        moves=(
            Move(
                verb="requeuehold",
                field="Restarts",
                before=str(restarts),
                after=str(restarts + 1),
            ),
            Move(verb="wait", field="JobState", before="RUNNING", after="PENDING"),
            *(pending_update(*change) for change in changes),
            Move(verb="release", field="Hold", before="user", after="no"),
        ),
        notes=(_REQUEUED, _LIMITS),
    )


_NODE_LOSS = (
    "The job loses whole nodes while it runs: steps on them are killed. Only a program that "
    "survives the loss of workers keeps on; the batch host stays. Slurm cannot give them back to a "
    "running job: the way back requeues it, and work since its last checkpoint is lost then."
)
_REQUEUED = (
    "The job is requeued: it starts again from its last checkpoint, and work since then is lost. "
    "It is eligible again after cred_expire of slurm.conf (120 s by default)."
)
_LIMITS = (
    "Others may fill the limits of its QOS and account once it gives up its GPUs, and it may wait "
    "for them. `scontrol show assoc_mgr` tells what is used of them."
)
_WARN_OWNER = (
    "Warn the owner first: the job is cancelled, what it has not saved is lost, and there is no "
    "way back."
)


def _update(field: str, before: str, after: str) -> Move:
    return Move(verb="update", field=field, before=before, after=after)


def pending_update(field: str, before: str, after: str) -> Move:
    """Return the update of a field as waiting jobs take it."""
    if field == "NumNodes":
        return _update(field, pending_nodes(before), pending_nodes(after))
    return _update(field, before, after)


def is_in_place(change: tuple[str, str, str]) -> bool:
    """Return whether a running job takes it: fewer nodes."""
    field, before, after = change
    return field == "NumNodes" and _lowest(after) < _lowest(before)


def _lowest(nodes: str) -> int:
    return int(nodes.partition("-")[0])


def _require_requeue(state: State, allow_requeue: bool) -> None:
    if not state["interface"].startswith(COMMANDS):
        raise refuse(
            "slurmrestd has no way to requeue a job",
            "Give apply_slurm no token, so that scontrol is used.",
        )
    if not allow_requeue:
        raise refuse(
            "Slurm cannot change the GPUs of a job that runs",
            "Set apply_slurm.allow_requeue=true to requeue it (work since its checkpoint is lost), "
            "or ask its owner to submit the next run with the proposed size.",
        )
    if state["JobState"] != "RUNNING" or state["batch"] != "yes" or state["requeue"] != "yes":
        raise refuse(
            f"the job cannot be requeued ({state['JobState']}, batch {state['batch']}, "
            f"requeue {state['requeue']})",
            "Ask its owner to submit the next run with the proposed size.",
        )
    if state.get("Hold", "no") != "no":
        raise refuse(
            "the job is held although it runs, so a requeue would not start it again",
            "Whoever held it has to release it first.",
        )


def _resize(recommendation: Recommendation, state: State, allow_requeue: bool) -> Moves:
    proposed = recommendation.proposed
    count = proposed.gpu_count
    if count < 1:
        raise refuse("a job cannot be resized to no GPU", "Reclaim it instead.")
    if state.get("whole_nodes") == "yes":
        raise refuse(
            "the job takes whole nodes (--exclusive): it holds all their GPUs whatever it asks for",
            "Ask its owner to submit the next run without --exclusive.",
        )
    is_later = release_of(state["interface"]) > COUNTS_CPUS_BY_GPU
    if is_later and state.get("cpus_by_gpu") == "yes":
        raise refuse(
            "the job asks for CPUs by GPU (--cpus-per-gpu): with another number of GPUs Slurm "
            f"{state['interface'].partition(' ')[2]} would keep it waiting for Resources",
            "Ask its owner to submit the next run with the proposed size.",
        )
    key = type_key(proposed.gpu_model, proposed.mig_profile)
    request = _request_by_node(state)
    gres = gpu_request(request)
    gpu_type = _proposed_type(recommendation, state, gres, state.get(key, ""))
    shrunk = _fewer_nodes(state, gres, gpu_type, count)
    if shrunk:
        return arranged((shrunk,), state, allow_requeue=allow_requeue)
    changes = _moved_elsewhere(recommendation, state)
    changes += _sizes(state, request, GresRequest(gpu_type=gpu_type, count=gres.count), count)
    if not changes:
        raise refuse("the job already asks for exactly this", "Run a new cycle.")
    return arranged(tuple(changes), state, allow_requeue=allow_requeue)


def _request_by_node(state: State) -> str:
    requests = [(per, state[field]) for per, field in GPU_FIELDS.items() if state.get(field)]
    if any(per == "socket" for per, _request in requests):
        raise refuse("the job asks for GPUs by socket, which no Slurm changes safely")
    if len(requests) != 1:
        raise refuse(f"the job asks for GPUs in {len(requests)} ways, not in one")
    per, request = requests[0]
    if per in _KEPT_OPTIONS:
        raise refuse(KEPT_OPTION.format(option=_KEPT_OPTIONS[per]), BY_OWNER)
    return request


def _proposed_type(
    recommendation: Recommendation, state: State, gres: GresRequest, resolved: str
) -> str:
    """Return the gres type to ask for: the job's own is kept unless another board is proposed."""
    now, proposed = recommendation.now, recommendation.proposed
    if (now.gpu_model, now.mig_profile) == (proposed.gpu_model, proposed.mig_profile):
        return gres.gpu_type
    if not TYPE_NAME.fullmatch(resolved):
        raise refuse(
            f"no gres type of this site is known to be {scrub(proposed.describe())}",
            "Name it in slurm.gpu_models, such as a100=A100-SXM4-80GB.",
        )
    if not gres.gpu_type:
        raise refuse(
            "the job names no GPU type, and Slurm refuses to mix requests with and without one",
            "Ask its owner to submit the next run with the type.",
        )
    if resolved != gres.gpu_type and release_of(state["interface"]) < _TYPE_CHANGES_FROM:
        raise refuse(
            f"Slurm {state['interface'].partition(' ')[2]} cannot change a GPU type: the old one "
            "stays in the request and the job never starts",
            "Ask its owner to submit the next run with the proposed type.",
        )
    return resolved


def _fewer_nodes(
    state: State, gres: GresRequest, gpu_type: str, count: int
) -> tuple[str, str, str] | None:
    """Return the shrink of a running job to fewer nodes, when that alone gives the count."""
    if state["JobState"] not in ("RUNNING", "SUSPENDED"):
        return None
    nodes = int(state["NumNodes"])
    if gpu_type != gres.gpu_type or count % gres.count or not 0 < count // gres.count < nodes:
        return None
    if state["interface"].startswith("v0.0.38"):
        return None  # it cannot, and requeueing is not its way either
    if state.get("tasks_by_node") == "yes" and release_of(state["interface"]) > COUNTS_CPUS_BY_GPU:
        return None  # "Job is no longer pending execution"
    return ("NumNodes", str(nodes), str(count // gres.count))


def _moved_elsewhere(recommendation: Recommendation, state: State) -> list[tuple[str, str, str]]:
    """Return the changes of partition and features that the recommendation names itself."""
    details = dict(recommendation.details)
    changes = []
    for name, field in (("partition", "Partition"), ("features", "Features")):
        value = details.get(name)
        if value is None or value == state[field]:
            continue
        if not _WORD.fullmatch(value):
            raise refuse(f"{scrub(value)!r} is no name of a {name}")
        changes.append((field, state[field], value))
    return changes


def _sizes(
    state: State, request: str, target: GresRequest, count: int
) -> list[tuple[str, str, str]]:
    low, _, high = pending_nodes(state["NumNodes"]).partition("-")
    requested = state.get("nodes_asked") or low
    if not requested == low == high:
        raise refuse(
            f"the job asks for {requested} to {high} nodes, so its GPU count is not one number"
        )
    nodes, each = _shape(int(low), target.count, count)
    after = with_gpus(request, GresRequest(gpu_type=target.gpu_type, count=each))
    if nodes == int(low):
        change = ("Gres", request, after)
        return [] if same_value(*change) else [change]
    # Gres follows even where it stays: else the total keeps the GPUs of the old nodes.
    return [("NumNodes", state["NumNodes"], str(nodes)), ("Gres", request, after)]


def _shape(nodes: int, each: int, count: int) -> tuple[int, int]:
    """Return (nodes, GPUs a node): as many nodes as now, else full ones, else the most that divide.

    Never more nodes than now: Slurm would raise CPUs and memory with them and keep those on the
    way back.
    """
    if count % nodes == 0:
        return nodes, count // nodes
    if count % each == 0 and count // each < nodes:
        return count // each, each
    most = next(number for number in range(min(nodes, count), 0, -1) if count % number == 0)
    return most, count // most


def _shorter(seconds: str, state: State) -> Moves:
    try:
        minutes = math.ceil(float(seconds) / 60)
    except (ValueError, OverflowError):
        raise refuse(f"{scrub(seconds)!r} is no time limit in seconds") from None
    before = state["TimeLimit"]
    if minutes < 1 or (before and minutes >= float(before)):
        raise refuse(
            f"a time limit is only ever lowered: {before or 'no limit'} -> {minutes} min",
            "Ask an operator to raise it.",
        )
    note = "A job that still runs at its limit is killed. Only an operator can raise it again."
    return Moves(moves=(_update("TimeLimit", before, str(minutes)),), notes=(note,))


def _later(begin_at: str, state: State) -> Moves:
    try:
        begin = datetime.fromisoformat(begin_at)
    except ValueError:
        raise refuse(f"{scrub(begin_at)!r} is no time such as 2026-01-02T03:00:00Z") from None
    if begin.tzinfo is None:
        raise refuse(f"{scrub(begin_at)!r} lacks its zone")
    if state["JobState"] != "PENDING":
        raise refuse(f"the job is {state['JobState']}: only one that waits can start later")
    if state["Hold"] != "no":
        raise refuse("the job is held: it does not start anyway", "Release it first.")
    after = begin.astimezone(UTC).replace(microsecond=0).isoformat()
    if after == state["StartTime"]:
        raise refuse("the job already starts not before then", "Run a new cycle.")
    return Moves(moves=(_update("StartTime", state["StartTime"], after),))


def _reclaim(state: State) -> Moves:
    if state["JobState"] not in ("RUNNING", "SUSPENDED"):
        raise refuse(f"the job is {state['JobState']}: it holds no GPU to reclaim")
    move = Move(verb="cancel", field="JobState", before=state["JobState"], after="OVER")
    return Moves(moves=(move,), notes=(_WARN_OWNER,))
