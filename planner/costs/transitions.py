"""Seconds that changes of jobs take: leaving one configuration and entering another.

Priors until changes have been measured here: Sia (SOSP 2023) measured 15-250 s for a rescale on
real jobs, Tiresias (NSDI 2019) took 62 s for a restart. Work since the last checkpoint, or since
the start of a run without one, is lost and done again (`elasticity.py`). To change a request in the
queue is one call of the scheduler, about a second.
"""

from dataclasses import dataclass

from data.facts.queue_waits import QueueWait
from planner.costs.configurations import Option
from planner.jobs.elasticity import Elasticity, JobElasticity


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionPart:
    """One part of a change, s as low, central, high. `leaving`: on the devices held before.

    A job has its GPUs during a part, unless it waits for them (`busy` is False). `at_worst`: no
    more than the worst case is known, so that plans count it.
    """

    what: str
    low: float
    central: float
    high: float
    leaving: bool
    busy: bool = True
    at_worst: bool = False


_CHECKPOINT = TransitionPart(what="write a checkpoint", low=5, central=30, high=120, leaving=True)
_RESTART = TransitionPart(what="start again", low=15, central=62, high=250, leaving=False)
_RESCALE = TransitionPart(what="rescale while running", low=15, central=62, high=250, leaving=False)
_ROLL_OUT = TransitionPart(what="start new replicas", low=15, central=62, high=250, leaving=False)
_MIGRATE = TransitionPart(
    what="load its data on other nodes", low=0, central=60, high=250, leaving=False
)
_REPARTITION = TransitionPart(
    what="cut the board anew", low=15, central=60, high=250, leaving=False
)
_REQUEST = TransitionPart(
    what="change its request in the queue", low=0.5, central=1, high=10, leaving=False, busy=False
)

_TRANSITION_PARTS = {
    Elasticity.SERVICE: _ROLL_OUT,
    Elasticity.ELASTIC: _RESCALE,
    Elasticity.RESTARTABLE: _RESTART,
    Elasticity.RIGID: _RESTART,
}


def leaving(standing: JobElasticity, present: Option, option: Option) -> tuple[TransitionPart, ...]:
    """Return the parts of leaving `present` for `option`; none for a cap or an end of the job."""
    return _leaving(standing) if _restarts(present, option) else ()


def _leaving(standing: JobElasticity) -> tuple[TransitionPart, ...]:
    if standing.elasticity is Elasticity.SERVICE:
        return ()
    lost = standing.lost
    if standing.elasticity is Elasticity.ELASTIC or lost is None:
        return (_CHECKPOINT,)
    low, central, high = lost.seconds
    redo = TransitionPart(
        what=f"redo the work since {lost.since}",
        low=low,
        central=central,
        high=high,
        leaving=True,
        at_worst=lost.at_worst,
    )
    # A run that is not known to write checkpoints is not waited for to write one.
    return (redo,) if lost.at_worst else (_CHECKPOINT, redo)


def entering(
    elasticity: Elasticity, present: Option, option: Option, wait: QueueWait | None = None
) -> tuple[TransitionPart, ...]:
    """Return the parts of entering `option`; `present` is the configuration of now.

    Entering the present one again, after a pause, is a start. `wait` is the forecast of the queue
    that the job would stand in, None where it need not.
    """
    if not option.boards or (option is not present and not _restarts(present, option)):
        return ()
    now, then = present.configuration, option.configuration
    parts = [] if wait is None or not wait.known else [_waiting(wait)]
    parts.append(_TRANSITION_PARTS[elasticity])
    if now.gpu_model != then.gpu_model:
        parts.append(_MIGRATE)
    if now.mig_profile != then.mig_profile:
        parts.append(_REPARTITION)
    return tuple(parts)


def moving(
    standing: JobElasticity, present: Option, wait: QueueWait | None = None
) -> tuple[TransitionPart, ...]:
    """Return the parts of a move to other nodes: a start of the present configuration there."""
    return (*_leaving(standing), *entering(standing.elasticity, present, present, wait))


def requesting(present: Option, option: Option) -> tuple[TransitionPart, ...]:
    """Return the parts of `option` for a job that waits for its start; none to begin later.

    It has done no work: nothing is checkpointed, lost or started again, and no GPU is held.
    """
    changes = option.boards and _restarts(present, option)
    return (_REQUEST,) if changes else ()


def _waiting(wait: QueueWait) -> TransitionPart:
    return TransitionPart(
        what="wait in the queue",
        low=wait.low,
        central=wait.median,
        high=wait.high,
        leaving=False,
        busy=False,
    )


def _restarts(present: Option, option: Option) -> bool:
    if option is present or option.configuration.power_cap_watts is not None:
        return False
    return option.paused or bool(option.boards)
