"""Which targets get no recommendation for now: what was just done to them is not over yet."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from data.records.decisions import Recommendation
from data.records.jobs import Job
from data.records.lifecycle import OPEN, STANDING, State
from data.store import StoreReader

REST = timedelta(hours=24)
"""Who undoes a change has a reason: the same thing is not proposed again within this time."""
_FROM_OUTSIDE = (State.UNDONE_OUTSIDE, State.CHANGED_OUTSIDE)


def resting(reader: StoreReader, jobs: Iterable[Job], now: datetime) -> Mapping[str, str]:
    """Give by job, or by what of the fleet, why nothing is proposed for it."""
    present = {job.job_id: job for job in jobs}
    found = {}
    for digest, state in reader.states().items():
        if state not in STANDING and state not in OPEN and state not in _FROM_OUTSIDE:
            continue
        one = reader.recommendation(digest, now=now).recommendation
        why = _why(reader, one, state, present.get(one.job_id), now)
        if why:
            found[one.target] = f"{why} (recommendation {one.recommendation_id})"
    return found


def _why(
    reader: StoreReader, one: Recommendation, state: State, job: Job | None, now: datetime
) -> str:
    """Give why the target of a recommendation rests, '' when it does not."""
    if state in OPEN:
        return f"a change of it is {state}"
    if state in _FROM_OUTSIDE:
        at = reader.journal(digest=one.digest, events=(str(state),))[-1].at
        what = "undone" if state is State.UNDONE_OUTSIDE else "changed"
        over = at + REST
        said = f"its last change was {what} from outside at {at:%Y-%m-%d %H:%M} UTC"
        return f"{said}: nothing is proposed before {over:%Y-%m-%d %H:%M} UTC" if now < over else ""
    watched = not reader.commands(one.digest)[-1].finished
    if watched and job is not None and _is_as_before(one, job):
        return "a change of it is applied, and its readings do not show it"
    return ""


def _is_as_before(one: Recommendation, job: Job) -> bool:
    """Tell whether the job looks as it did before a change that would show."""
    has = (job.gpu_model, job.gpu_count, job.mig_profile)
    before, after = (
        (there.gpu_model, there.gpu_count, there.mig_profile) for there in (one.now, one.proposed)
    )
    return has == before != after
