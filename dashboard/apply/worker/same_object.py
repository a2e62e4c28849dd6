"""Recommendations that change the same fields of the same object."""

from collections.abc import Collection

from data.records.changes import Change
from data.records.commands import Command, Work
from data.records.lifecycle import State
from data.store import StoreReader
from data.store.engine.record_json import from_json


def commands_on_same_object(
    reader: StoreReader, change: Change, digest: str, states: Collection[State]
) -> tuple[Command, ...]:
    """Return the last command of each other recommendation in `states` that shares a field."""
    commands = []
    for other, state in reader.states().items():
        if other == digest or state not in states:
            continue
        rows = reader.journal(digest=other, events=(str(Work.PREPARED),))
        if rows and _overlap(change, from_json(Change, rows[0].record)):
            commands.append(reader.commands(other)[-1].command)
    return tuple(commands)


def _overlap(one: Change, other: Change) -> bool:
    fields = {(step.target, step.field) for step in one.steps}
    same = (one.target.kind, one.target.name) == (other.target.kind, other.target.name)
    return same and any((step.target, step.field) in fields for step in other.steps)
