"""The policies that a simulation may compare, by name."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.simulation.gavel_policy import GavelPolicy
from benchmarks.simulation.job_view import SchedulingPolicy
from benchmarks.simulation.rigid_policies import FirstInPolicy, LeastAttainedPolicy
from benchmarks.simulation.rounds.policy import HeterogeneousPolicy
from benchmarks.simulation.sia_policy import SiaPolicy
from data.base.errors import ImpossibleProblemError


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A policy, and whether its jobs keep the GPUs and the batch that their users guessed."""

    name: str
    make: Callable[[], SchedulingPolicy]
    rigid: bool


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(name="first-in", make=FirstInPolicy, rigid=True),
        Entry(name="least-attained", make=LeastAttainedPolicy, rigid=True),
        Entry(name="gavel", make=GavelPolicy, rigid=True),
        Entry(name="sia", make=SiaPolicy, rigid=False),
        Entry(name="has", make=HeterogeneousPolicy, rigid=False),
    )
}


def entry_of(name: str) -> Entry:
    """Return the policy of a name. Errors: ImpossibleProblemError with the names there are."""
    if name not in ENTRIES:
        raise ImpossibleProblemError(
            f"no policy is called {name!r}", f"choose among {', '.join(ENTRIES)}"
        )
    return ENTRIES[name]
