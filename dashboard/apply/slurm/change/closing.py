"""End of a change that is given up half-way: finished or taken back, and never on hold. Pure."""

from dataclasses import dataclass

from dashboard.apply.contract.applier import Remains
from dashboard.apply.slurm.change.moves import Move, State, pending_update, same_value
from dashboard.apply.slurm.change.steps import release_of_hold, restored
from data.records.changes import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingStep:
    """The commands that are next, and what is left once they hold; `detail` says it in words."""

    moves: tuple[Move, ...]
    left: Remains
    detail: str


def closing_of(moves: tuple[Move, ...], sent: int, state: State, *, total: str) -> ClosingStep:
    """Return the end of a change whose first `sent` moves were sent, from the job's state now.

    When every value holds, only the release is missing. Else what was set goes back, nodes first
    and GPUs last, and the release comes after: the job starts as it was. Values that somebody else
    has set since stay, and so do those of a job that has started. `total` is what the job asked for
    before, as `tres_req_str` says it.
    """
    updates = tuple(move for move in moves if move.verb == "update")
    done = moves[:sent]
    release = release_of_hold(done, state)
    if updates and all(_holds(move, state) for move in updates):
        return ClosingStep(moves=release, left=Remains.ALL, detail="the change was finished")
    changes = _changes_back(done, state, total) if state.get("JobState") == "PENDING" else ()
    after = {**state} | {field: before for field, _now, before in changes}
    complete = all(
        same_value(update.field, after.get(update.field, ""), update.before) for update in updates
    )
    restarts = int(state.get("Restarts", "0"))
    requeued = any(move.verb == "requeuehold" and restarts >= int(move.after) for move in done)
    back = tuple(pending_update(*change) for change in changes)
    if not complete:
        outcome, detail = Remains.PART, "part of the change stands"
    elif requeued:
        outcome, detail = Remains.PART, "of the change only its requeue stands"
    else:
        outcome, detail = Remains.NOTHING, "nothing of the change stands"
    return ClosingStep(moves=(*back, *release), left=outcome, detail=detail)


def _holds(move: Move, state: State) -> bool:
    return same_value(move.field, state.get(move.field, ""), move.after)


def _changes_back(
    done: tuple[Move, ...], state: State, total: str
) -> tuple[tuple[str, str, str], ...]:
    changes = restored(tuple(move for move in done if _holds(move, state)), state)
    gres = state.get("Gres", "")
    nodes_moved = any(move.field == "NumNodes" for move in done)
    if not changes and nodes_moved and gres and state.get("TRES", total) != total:
        # Whoever took the nodes back died before the total of GPUs followed.
        return (("Gres", gres, gres),)
    return changes


def may_hold(change: Change, sent: int) -> bool:
    """Return whether a job may be held by the steps that were sent."""
    return any(step.verb in ("hold", "requeuehold") for step in change.steps[:sent])


def held_text(change: Change) -> str:
    """Return the note for a person on a job that is still on hold."""
    number = dict(change.target.state)["number"]
    return f"job {number} may be held by the change (by hand: scontrol release {number})"
