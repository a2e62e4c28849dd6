"""An applier of a further cluster: it has that cluster's names, the store those with `@CLUSTER`.

Recommendations, jobs and boards reach it as its cluster calls them; targets leave it as the store
does. What people approve stays the same: the digest of the recommendation as the store has it, and
that of a change of which the target has its full name.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from dashboard.apply.contract.applier import (
    AccessCheckingApplier,
    Applier,
    CloseResult,
    ClosingApplier,
    NotingApplier,
    ReviewedApplier,
)
from data.facts.cluster_names import name_in_cluster, named_in
from data.facts.fleet import Gpu
from data.facts.jobs import Job
from data.records.changes import Change, ChangeStep, ReadBack, Rehearsal, StepResult, Target
from data.records.plans import Configuration
from data.records.recommendations import Recommendation


def in_local_names(recommendation: Recommendation) -> Recommendation:
    """Return a recommendation as its cluster calls the job and the nodes in it.

    Its digest is that of the recommendation as the store has it, which was approved.
    """
    if not recommendation.cluster:
        return recommendation
    ending = f"@{recommendation.cluster}"
    return replace(
        recommendation,
        job_id=name_in_cluster(recommendation.job_id),
        job_name=recommendation.job_name
        if recommendation.job_id
        else name_in_cluster(recommendation.job_name),
        change=recommendation.change.replace(ending, ""),
        details=tuple((name, name_in_cluster(value)) for name, value in recommendation.details),
        now=_local_configuration(recommendation.now),
        proposed=_local_configuration(recommendation.proposed),
    ).as_kept(recommendation.digest)


def local_job(job: Job | None) -> Job | None:
    """Return a job as its cluster calls it and its nodes."""
    facts = None if job is None else job.scheduler
    return job and replace(
        job,
        job_id=name_in_cluster(job.job_id),
        source=name_in_cluster(job.source),
        scheduler=facts and replace(facts, nodes=tuple(map(name_in_cluster, facts.nodes))),
    )


def local_boards(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return boards as their cluster calls them, their nodes and jobs."""
    return tuple(
        replace(
            gpu,
            gpu_uuid=name_in_cluster(gpu.gpu_uuid),
            node=name_in_cluster(gpu.node),
            job_id=name_in_cluster(gpu.job_id),
            co_holders=tuple(map(name_in_cluster, gpu.co_holders)),
        )
        for gpu in gpus
    )


def _local_configuration(configuration: Configuration) -> Configuration:
    return replace(configuration, shared_with=name_in_cluster(configuration.shared_with))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterApplier:
    """The applier `inner` of the further cluster `cluster`."""

    inner: Applier
    cluster: str

    @property
    def name(self) -> str:
        """Name in settings, audit and pages."""
        return self.inner.name

    def covers(self, recommendation: Recommendation) -> bool:
        """Return whether this applier makes changes of this kind, in its cluster."""
        return recommendation.cluster == self.cluster and self.inner.covers(
            in_local_names(recommendation)
        )

    def look(
        self, recommendation: Recommendation, *, job: Job | None, gpus: tuple[Gpu, ...]
    ) -> Target:
        """Read the target afresh. Errors: as `Applier.look`."""
        return self._full(
            self.inner.look(
                in_local_names(recommendation), job=local_job(job), gpus=local_boards(gpus)
            )
        )

    def change_for(self, recommendation: Recommendation, target: Target) -> Change:
        """Return the steps and the steps back; pure. Errors: ChangeRefusedError."""
        local = self.inner.change_for(in_local_names(recommendation), _local_target(target))
        return replace(local, target=self._full(local.target))

    def look_again(self, change: Change) -> Target:
        """Read the target of a change afresh. Errors: as `Applier.look`."""
        return self._full(self.inner.look_again(_local(change)))

    def change_back(self, change: Change, target: Target) -> Change:
        """Return the change that restores what `change` touched; pure. Errors: StalePlanError."""
        local = self.inner.change_back(_local(change), _local_target(target))
        return replace(local, target=self._full(local.target))

    def rehearse(self, change: Change) -> Rehearsal:
        """Ask the target what it would do, changing nothing. Errors: ApplyError."""
        return self.inner.rehearse(_local(change))

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Send one command, once. Never raises for what the target answers."""
        return self.inner.execute(step, _local(change))

    def read_back(self, change: Change, *, done: int) -> ReadBack:
        """Look once whether the first `done` steps of the change hold. Never raises."""
        return self.inner.read_back(_local(change), done=done)

    def _full(self, target: Target) -> Target:
        return replace(target, name=named_in(target.name, self.cluster))


def _local_target(target: Target) -> Target:
    return replace(target, name=name_in_cluster(target.name))


def _local(change: Change) -> Change:
    return replace(change, target=_local_target(change.target))


class _Closes:
    """The optional part `ClosingApplier`."""

    inner: Any

    def close(self, change: Change, *, sent: int) -> CloseResult:
        return cast("CloseResult", self.inner.close(_local(change), sent=sent))

    def between_steps(self, change: Change, *, sent: int) -> str:
        return cast("str", self.inner.between_steps(_local(change), sent=sent))


class _ReviewedPart:
    """The optional part `ReviewedApplier`."""

    inner: Any

    def looks_every(self) -> timedelta:
        return cast("timedelta", self.inner.looks_every())


class _Checks:
    """The optional part `AccessCheckingApplier`."""

    inner: Any

    def access(self) -> tuple[bool, str]:
        return cast("tuple[bool, str]", self.inner.access())


class _Notes:
    """The optional part `NotingApplier`."""

    inner: Any

    def note(self, change: Change, *, actor: str, outcome: str) -> str:
        return cast("str", self.inner.note(_local(change), actor=actor, outcome=outcome))


_PARTS = (
    (ClosingApplier, _Closes),
    (ReviewedApplier, _ReviewedPart),
    (AccessCheckingApplier, _Checks),
    (NotingApplier, _Notes),
)


def cluster_of(applier: Applier) -> str:
    """Return the cluster that an applier changes, '' for the main one."""
    return applier.cluster if isinstance(applier, ClusterApplier) else ""


def in_cluster(applier: Applier, cluster: str) -> Applier:
    """Return an applier as that of a cluster, '' for the main one; with its optional parts."""
    if not cluster:
        return applier
    parts = tuple(part for optional, part in _PARTS if isinstance(applier, optional))
    kind = type("ClusterApplier", (ClusterApplier, *parts), {})
    return cast("Applier", kind(inner=applier, cluster=cluster))
