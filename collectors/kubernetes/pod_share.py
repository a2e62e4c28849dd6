"""A pod's part of boards that it shares with others."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShare:
    """Parts of boards that others may be on too.

    `by` says in words who shares them out; `boards` are UUIDs or indices, empty where nobody tells;
    `ratio` is the pod's part of each, None where that is not known. `reserved_by` is the pod whose
    name stands for the board in readings, '' where none does.
    """

    by: str
    boards: tuple[str, ...] = ()
    ratio: float | None = None
    reserved_by: str = ""
