"""Moves as the steps that are shown, stored and sent. Pure."""

from dashboard.apply.slurm.change.moves import Move, State
from dashboard.apply.slurm.change.ways_back import moves_back
from dashboard.apply.slurm.client.requests import COMMANDS, by_hand, encoded, payload_of
from data.base.errors import ApplyError
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
