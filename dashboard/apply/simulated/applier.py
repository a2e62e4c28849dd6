"""The applier of the simulated cluster: what the demo applies to.

It works like every other one, down to the read back, and every word that it leaves in a preview,
the journal or the audit says that the cluster is simulated. A change is one command, which the
cluster takes whole or refuses.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from collectors.simulated.cluster import SimulatedCluster, SimulatedJob, same_allocation
from data.base.errors import ApplyError, ChangeRefusedError, CollectorError, StalePlanError
from data.facts.fleet import Gpu
from data.facts.jobs import Job
from data.records.changes import (
    Change,
    ChangeStep,
    ReadBack,
    Rehearsal,
    StepOutcome,
    StepResult,
    Target,
)
from data.records.changes import VerificationResult as Verdict
from data.records.plans import Configuration
from data.records.recommendations import Recommendation

_FIELD = "allocation"
_WHERE = "simulated cluster"
_PLAN_AGAIN = "Run a new cycle and approve its recommendation."


class SimulatedApplier:
    """Makes approved changes in the simulated cluster, whose time is `clock`'s."""

    def __init__(self, cluster: SimulatedCluster, *, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._clock = clock

    @property
    def name(self) -> str:
        """Name in settings, audit and pages."""
        return "simulated"

    def covers(self, recommendation: Recommendation) -> bool:
        """Return whether this applier makes changes of this kind."""
        return self.name in recommendation.action.spec.appliers and bool(recommendation.job_id)

    def look(
        self, recommendation: Recommendation, *, job: Job | None, gpus: tuple[Gpu, ...]
    ) -> Target:
        """Read the job afresh. Errors: StalePlanError when it is gone or has other GPUs."""
        run = self._job(recommendation.job_id)
        has, plan = run.configuration, recommendation.now
        if (has.gpu_model, has.gpu_count, has.mig_profile) != (
            plan.gpu_model,
            plan.gpu_count,
            plan.mig_profile,
        ):
            raise StalePlanError(
                f"{_WHERE}: {recommendation.job_id} has {has.describe()} now, the plan saw "
                f"{plan.describe()}",
                _PLAN_AGAIN,
            )
        return _target(recommendation.job_id, run)

    def change_for(self, recommendation: Recommendation, target: Target) -> Change:
        """Return the one step and the step back; pure. Errors: ChangeRefusedError."""
        has, size = _configuration(target), recommendation.proposed
        if same_allocation(has, size):
            raise ChangeRefusedError(f"{target.name} has {size.describe()} already", _PLAN_AGAIN)
        return _change(recommendation.digest, target, size)

    def look_again(self, change: Change) -> Target:
        """Read the job of a change as it is now. Errors: StalePlanError, ApplyError."""
        name = change.target.name
        return _target(name, self._job(name))

    def change_back(self, change: Change, target: Target) -> Change:
        """Return the change that restores what the job had before; pure.

        Errors: StalePlanError when it has neither what was sent nor what was before.
        """
        has = _configuration(target)
        before, after = _sent(change.steps[0])
        if not (same_allocation(has, before) or same_allocation(has, after)):
            raise StalePlanError(
                f"{_WHERE}: {target.name} has {has.describe()} now: someone else changed it",
                "Undo that first.",
            )
        if same_allocation(has, before):
            return Change(
                recommendation_digest=change.recommendation_digest, target=target, steps=(), undo=()
            )
        return _change(change.recommendation_digest, target, before)

    def rehearse(self, change: Change) -> Rehearsal:
        """Ask the cluster whether it has room. Errors: ApplyError."""
        _before, target = _sent(change.steps[0])
        try:
            refusal = self._cluster.room_for(change.target.name, target, self._clock())
        except CollectorError as error:
            raise ApplyError(error.message, error.hint) from error
        return Rehearsal(rehearsed=True, refusals=(refusal,) if refusal else ())

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Send the command, once. Never raises for what the cluster answers."""
        before, after = _sent(step)
        try:
            self._cluster.change(step.target, before=before, after=after, clock=self._clock)
        except (ApplyError, CollectorError) as refusal:
            return StepResult(outcome=StepOutcome.REFUSED, detail=f"{_WHERE}: {refusal}")
        except OSError as error:
            # The file may have been replaced before the error: only a look can tell.
            return StepResult(outcome=StepOutcome.UNKNOWN, detail=f"{_WHERE}: {error.strerror}")
        return StepResult(outcome=StepOutcome.DONE, detail=f"{_WHERE}: taken")

    def read_back(self, change: Change, *, done: int) -> ReadBack:
        """Look once whether the change holds. Never raises."""
        name = change.target.name
        try:
            job = self._cluster.job(name, self._clock())
        except (CollectorError, OSError) as error:
            return ReadBack(seen=Verdict.UNREADABLE, detail=f"{_WHERE}: {error}")
        if job is None:
            return ReadBack(seen=Verdict.GONE, detail=f"{_WHERE}: {name} has ended")
        has = job.configuration
        before, after = _sent(change.steps[0])
        verdict = Verdict.DIFFERENT
        if done and same_allocation(has, after):
            verdict = Verdict.AS_INTENDED
        elif same_allocation(has, before):
            verdict = Verdict.UNTOUCHED
        places = f" on {', '.join(job.places)}" if job.places else ""
        return ReadBack(
            seen=verdict,
            detail=f"{_WHERE}: {name} has {has.describe()}{places}",
            observed=((_FIELD, has.describe()),),
        )

    def _job(self, job_id: str) -> SimulatedJob:
        try:
            job = self._cluster.job(job_id, self._clock())
        except CollectorError as error:
            raise ApplyError(error.message, error.hint) from error
        if job is None:
            raise StalePlanError(f"{_WHERE}: no job {job_id} runs", _PLAN_AGAIN)
        return job


def _target(job_id: str, job: SimulatedJob) -> Target:
    return Target(
        kind="simulated job",
        name=job_id,
        identity=job.identity,
        version=str(job.changes),
        state=(
            (_FIELD, json.dumps(asdict(job.configuration), sort_keys=True)),
            ("boards", "; ".join(job.places)),
        ),
    )


def _configuration(target: Target) -> Configuration:
    return Configuration(**json.loads(dict(target.state)[_FIELD]))


def _sent(step: ChangeStep) -> tuple[Configuration, Configuration]:
    """Return the configuration of the job before and after a step."""
    document: dict[str, dict[str, Any]] = json.loads(step.payload)
    return Configuration(**document["before"]), Configuration(**document["after"])


def _change(digest: str, target: Target, proposed: Configuration) -> Change:
    has = _configuration(target)
    return Change(
        recommendation_digest=digest,
        target=target,
        steps=(_step(target.name, has, proposed),),
        undo=(_step(target.name, proposed, has),),
        notes=("This is the simulated cluster: no real job is touched.",),
    )


def _step(job_id: str, before: Configuration, after: Configuration) -> ChangeStep:
    return ChangeStep(
        verb="allocate",
        target=job_id,
        field=_FIELD,
        before=before.describe(),
        after=after.describe(),
        payload=json.dumps({"before": asdict(before), "after": asdict(after)}, sort_keys=True),
        text=f"{_WHERE}: {job_id} from {before.describe()} to {after.describe()}",
    )
