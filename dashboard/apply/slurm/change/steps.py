"""Moves as the steps that are shown, stored and sent, and the moves back. Pure."""

from dashboard.apply.slurm.change.moves import (
    CONTROL,
    Move,
    Moves,
    State,
    arranged,
    is_in_place,
    refuse,
    same_value,
)
from dashboard.apply.slurm.client.requests import COMMANDS, by_hand, encoded, payload_of
from data.base.errors import ApplyError, StalePlanError, scrub
from data.records.changes import ChangeStep


def steps_of(moves: tuple[Move, ...], state: State) -> tuple[ChangeStep, ...]:
    """Return the steps of moves. Errors: ChangeRefusedError when the interface cannot send one."""
    address, number = state["address"], state["number"]
    interface = state.get("interface", COMMANDS)
    return tuple(
        ChangeStep(
            verb=move.verb,
            target=address,
            field=move.field,
            before=move.before,
            after=move.after,
            payload=encoded(
                payload_of(
                    interface,
                    move.verb,
                    address=address,
                    number=number,
                    field=move.field,
                    value=move.after,
                )
            ),
            text=by_hand(move.verb, address, move.field, move.after),
        )
        for move in moves
    )


def moves_of(steps: tuple[ChangeStep, ...]) -> tuple[Move, ...]:
    """Return the moves that steps stand for."""
    return tuple(
        Move(verb=step.verb, field=step.field, before=step.before or "", after=step.after or "")
        for step in steps
    )


def undo_steps(
    moves: tuple[Move, ...], state: State, *, allow_requeue: bool
) -> tuple[ChangeStep, ...]:
    """Return the steps back as they would be once the moves hold; none where there is no way."""
    then = dict(state)
    for move in moves:
        if move.verb == "requeuehold":
            then["Restarts"] = move.after
        elif move.verb == "wait":
            then["JobState"] = "PENDING"
        elif move.field != "Hold":
            then[move.field] = move.after
    try:
        return steps_of(moves_back(moves, then, allow_requeue=allow_requeue).moves, then)
    except ApplyError:
        return ()


def moves_back(moves: tuple[Move, ...], state: State, *, allow_requeue: bool) -> Moves:
    """Return the moves that restore the fields that `moves` touched, nodes first and GPUs last.

    None when all is as it was. A job that waits on our hold is let go whatever else was changed.
    Errors: StalePlanError when a field holds neither value, ChangeRefusedError.
    """
    if any(move.verb == "cancel" for move in moves):
        raise refuse("a cancelled job does not come back", "Its owner has to submit it again.")
    left_held = release_of_hold(moves, state)
    stray = tuple(move for move in moves if move.verb not in CONTROL and _is_stray(move, state))
    if stray and not left_held:
        now = scrub(state.get(stray[0].field, ""))
        raise StalePlanError(
            f"{stray[0].field} is now {now!r}, neither {stray[0].before!r} nor {stray[0].after!r}",
            "Somebody changed it since: nothing is restored.",
        )
    changes = restored(tuple(move for move in moves if move not in stray), state)
    back = arranged(changes, state, allow_requeue=allow_requeue) if changes else Moves(moves=())
    return Moves(moves=(*back.moves, *left_held), notes=back.notes)


def _is_stray(move: Move, state: State) -> bool:
    now = state.get(move.field, "")
    return not any(
        same_value(move.field, now, annotated) for annotated in (move.before, move.after)
    )


def restored(moves: tuple[Move, ...], state: State) -> tuple[tuple[str, str, str], ...]:
    """Return (field, now, before) of every field that holds what `moves` set, in order.

    Slurm derives the total of GPUs from the nodes only when it is told the GPUs.
    """
    changes = [
        (move.field, state.get(move.field, ""), move.before)
        for move in moves
        if move.verb not in CONTROL
    ]
    moved = [change for change in changes if not same_value(*change)]
    fields = {field for field, _now, _before in moved}
    in_place = state.get("JobState") != "PENDING" and all(map(is_in_place, moved))
    gres = state.get("Gres", "")
    if "NumNodes" in fields and "Gres" not in fields and gres and not in_place:
        moved.append(("Gres", gres, gres))
    return tuple(moved)


def release_of_hold(moves: tuple[Move, ...], state: State) -> tuple[Move, ...]:
    """Return the release of a job that waits on our hold, because a later step was not taken."""
    ours = any(move.verb in ("hold", "requeuehold") for move in moves)
    if not ours or state.get("Hold", "no") == "no" or state["JobState"] != "PENDING":
        return ()
    return (Move(verb="release", field="Hold", before=state["Hold"], after="no"),)
