"""The apply worker on the Kubernetes bed: commands go in, states come out, time is told to it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from beds.kubernetes import KubernetesBed
from factories import make_plan, make_recommendation

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.worker.worker import Worker
from dashboard.decisions import approvals
from data.base.clock import utc_now
from data.records.changes import Change, ChangeStep, StepResult
from data.records.lifecycle import OPEN
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.settings.apply import ApplySettings
from data.store import Store

_VISITS = 1500
_OVERDUE = timedelta(minutes=40)
"""More than a rollout's limit, the patience after it, and what a dead worker's lease takes."""
_PAUSE_SECONDS = 0.25
"""A hundred visits of 6 s are the ten minutes of `rollout_timeout`: the server has 25 s then."""


class WorkerDiedError(BaseException):
    """The process of the worker is gone."""


class Mortal(KubernetesApplier):
    """An applier whose process dies right after a step was sent, when told to."""

    dies = False

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Send a step, and die before anyone knows of it."""
        found = super().execute(step, change)
        if self.dies:
            self.dies = False
            raise WorkerDiedError
        return found


@dataclass(slots=True, kw_only=True)
class Play:
    """One recommendation on the bed: of the product only commands and states are known here."""

    bed: KubernetesBed
    store: Store
    applier: KubernetesApplier
    folder: Path
    namespace: str
    job_id: str
    advice: dict[str, Any]
    at: datetime = field(default_factory=utc_now)
    worker: Worker = field(init=False)
    recommendation: Recommendation = field(init=False)

    def __post_init__(self) -> None:
        """Have a worker, and a cycle that recommends the change."""
        self.worker = self.new_worker()
        self.recommendation = make_recommendation(
            job_id=self.job_id,
            namespace=self.namespace,
            created_at=self.at,
            expires_at=self.at + timedelta(hours=24),
            **self.advice,
        )
        self.store.keep_cycle(
            cycle_id=f"cycle-{self.namespace}",
            started_at=self.at,
            finished_at=self.at,
            forecasts=(),
            plan=make_plan(),
            recommendations=(self.recommendation,),
        )

    def new_worker(self) -> Worker:
        """Return a worker in the place of a dead one."""
        apply = ApplySettings(
            enabled=True,
            stop_file=str(self.folder / "STOP"),
            max_per_hour=10_000,
            max_namespace_share_ratio=1.0,
            cool_down_minutes=0,
        )
        return Worker(
            store=self.store,
            settings=lambda: Settings(apply=apply),
            appliers=lambda _settings: (self.applier,),
            clock=lambda: self.at,
        )

    @property
    def digest(self) -> str:
        """What approvals and commands name."""
        return self.recommendation.digest

    @property
    def state(self) -> str:
        """What the product says of the recommendation."""
        return self.store.reader.recommendation(self.digest, now=self.at).state

    @property
    def said(self) -> str:
        """The state and the last words of the product."""
        rows = self.store.reader.journal(digest=self.digest)
        return f"{self.state}: {rows[-1].detail if rows else ''}"

    @property
    def sent(self) -> bool:
        """Whether a step was sent and answered."""
        return bool(self.store.reader.journal(digest=self.digest, events=("answered",)))

    def ask(self, before_asking: Callable[[], object] = lambda: None) -> None:
        """Approve the change, and ask for it."""
        approvals.approve(self.store, self.digest, by="Robin", now=self.at)
        before_asking()
        approvals.ask_to_apply(
            self.store, self.digest, by="Robin", now=self.at, appliers=(self.applier,)
        )

    def undo(self) -> None:
        """Ask for the rollback. Errors: as the decision."""
        approvals.ask_to_roll_back(self.store, self.digest, by="Robin", now=self.at)

    def settle(self, meanwhile: Callable[[], object] = lambda: None) -> str:
        """Let worker and cluster go on until nothing is under way; return the state.

        The product's clock goes slowly while the cluster moves or a pod waits, and fast once
        nothing moves any more, yet never so fast that the server's own clock, by which a failure
        is judged, has not passed `pending_seconds` when the product gives up.
        """
        asked_at, before = self.at, ""
        for _visit in range(_VISITS):
            try:
                self.worker.work_once()
            except WorkerDiedError:
                self.worker, self.at = self.new_worker(), self.at + timedelta(minutes=4)
            meanwhile()
            if self.state not in OPEN:
                return self.state
            pods = self.bed.list("Pod", namespace=self.namespace)
            now = "".join(sorted(pod["metadata"]["resourceVersion"] for pod in pods))
            waits = any(pod["status"].get("phase") == "Pending" for pod in pods)
            if now == before:
                time.sleep(_PAUSE_SECONDS)
            self.at += timedelta(seconds=0.5 if now != before else 3 if waits else 6)
            before = now
            assert self.at - asked_at < _OVERDUE, f"still {self.said} after {self.at - asked_at}"
        raise AssertionError(f"still {self.said} after {_VISITS} visits")

    def recover(self) -> str:
        """Let the watch of a change that fails go on; return the state once it is another."""
        for _visit in range(400):
            if self.state != "failing":
                break
            self.worker.work_once()
            self.at += timedelta(seconds=4)
        return self.state
