"""A cluster in a file, and an applier for it: a real target that keeps what was sent to it.

Each job is one JSON object with its fields, a uid, a version that grows with every write, and the
list of all commands that ever arrived, so that a test can tell once from twice.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
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
    VerificationResult,
)
from data.records.recommendations import Recommendation

FIELDS = ("gpus", "model", "note")


@dataclass(frozen=True)
class FileCluster:
    """One folder with a file per cluster; every access holds its lock."""

    path: Path

    def create(self, jobs: dict[str, dict[str, str]]) -> None:
        """Make the cluster with these jobs and fields."""
        self._write(
            {
                name: {"uid": f"uid-{name}", "version": 1, "log": [], "mood": "", **fields}
                for name, fields in jobs.items()
            }
        )

    def read(self, name: str) -> dict[str, Any] | None:
        """Give a job as it is, None when it is gone."""
        with self._locked() as jobs:
            found: dict[str, Any] | None = jobs.get(name)
            return found

    def change(self, name: str, **fields: Any) -> None:
        """Change a job from outside; None removes it."""
        with self._locked() as jobs:
            jobs[name].update(fields)
            jobs[name]["version"] += 1
            self._write(jobs)

    def remove(self, name: str) -> None:
        """Remove a job."""
        with self._locked() as jobs:
            del jobs[name]
            self._write(jobs)

    def send(self, name: str, field: str, value: str) -> None:
        """Take one command, and log it."""
        with self._locked() as jobs:
            jobs[name][field] = value
            jobs[name]["version"] += 1
            jobs[name]["log"].append([field, value])
            self._write(jobs)

    def _write(self, jobs: dict[str, Any]) -> None:
        # Written beside and moved, so that a killed writer leaves the old file.
        temporary = self.path.with_suffix(f".{uuid4().hex}")
        temporary.write_text(json.dumps(jobs))
        temporary.replace(self.path)

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield json.loads(self.path.read_text())


@dataclass(frozen=True)
class FileApplier:
    """Sets GPUs and a note of jobs in a file cluster, in one step each.

    A job's `mood` says how the cluster answers: busy, refuse, cut (the command arrives, the answer
    does not), lost (neither does), deaf (answers done, does nothing), quota (stores another value).
    A mood of the form `busy*2` holds for so many commands.
    """

    cluster: FileCluster
    name: str = "file"

    def covers(self, recommendation: Recommendation) -> bool:
        """Every recommendation, while there is a cluster."""
        return self.cluster.path.exists()

    def look(
        self, recommendation: Recommendation, *, job: Job | None, gpus: tuple[Gpu, ...]
    ) -> Target:
        """Refuse other GPUs than the plan saw."""
        target = self._target(recommendation.job_id)
        if dict(target.state)["gpus"] != str(recommendation.now.gpu_count):
            raise StalePlanError(
                f"{recommendation.job_id} has {dict(target.state)['gpus']} GPUs now", "Plan again."
            )
        return target

    def change_for(self, recommendation: Recommendation, target: Target) -> Change:
        """Set the GPUs, then the note."""
        wanted = {"gpus": str(recommendation.proposed.gpu_count), "note": recommendation.digest}
        return self._change(recommendation.digest, target, wanted)

    def look_again(self, change: Change) -> Target:
        """Read the job as it is."""
        return self._target(change.target.name)

    def change_back(self, change: Change, target: Target) -> Change:
        """Restore what was touched, unless someone else changed it."""
        state = dict(target.state)
        for step in change.steps:
            if state[step.field] not in (step.before, step.after):
                raise StalePlanError(f"{step.field} was changed by someone else", "")
        wanted = {
            step.field: step.before or ""
            for step in change.steps
            if state[step.field] != step.before
        }
        return self._change(change.recommendation_digest, target, wanted)

    def rehearse(self, change: Change) -> Rehearsal:
        """Refuse or rewrite as the mood says."""
        mood = self._mood(change.target.name)
        if mood == "quota-known":
            return Rehearsal(rehearsed=True, differences=(("gpus", "2", "3"),))
        return Rehearsal(rehearsed=True, refusals=("not allowed",) if mood == "forbid" else ())

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Send one command, and answer as the mood says."""
        name, value = step.target, step.after or ""
        mood = self._use_mood(name)
        if mood in ("busy", "refuse"):
            outcome = StepOutcome.BUSY if mood == "busy" else StepOutcome.REFUSED
            return StepResult(outcome=outcome, detail=mood, retry_after_seconds=0.01)
        if mood == "quota" and step.field == "gpus":
            value = "3"
        if mood not in ("lost", "deaf"):
            self.cluster.send(name, step.field, value)
        if mood in ("cut", "lost"):
            return StepResult(outcome=StepOutcome.UNKNOWN, detail="connection cut")
        return StepResult(outcome=StepOutcome.DONE, detail="")

    def read_back(self, change: Change, *, done: int) -> ReadBack:
        """Compare the fields with the steps."""
        job = self.cluster.read(change.target.name)
        if job is None:
            return ReadBack(seen=VerificationResult.GONE, detail="no such job")
        if job["mood"] == "unreadable":
            return ReadBack(seen=VerificationResult.UNREADABLE, detail="no answer")
        steps = change.steps[:done]
        observed = tuple((step.field, str(job[step.field])) for step in steps)
        if steps and all(job[step.field] == step.before for step in steps):
            return ReadBack(
                seen=VerificationResult.UNTOUCHED, detail="as before", observed=observed
            )
        if any(job[step.field] != step.after for step in steps):
            return ReadBack(
                seen=VerificationResult.DIFFERENT, detail="not as sent", observed=observed
            )
        moods = {"pending": VerificationResult.NOT_YET, "crashing": VerificationResult.FAILING}
        return ReadBack(
            seen=moods.get(job["mood"], VerificationResult.AS_INTENDED), detail=job["mood"]
        )

    def _target(self, name: str) -> Target:
        job = self.cluster.read(name)
        if job is None:
            raise StalePlanError(f"{name} is gone", "Plan again.")
        if job["mood"] == "down":
            raise ApplyError("the cluster does not answer", "Wait.")
        if job["mood"] == "foreign":
            raise ChangeRefusedError(f"{name} is managed by another", "Ask them.")
        state = tuple((field, job[field]) for field in FIELDS)
        return Target(
            kind="job", name=name, identity=job["uid"], version=str(job["version"]), state=state
        )

    def _change(self, digest: str, target: Target, wanted: dict[str, str]) -> Change:
        state = dict(target.state)
        steps = tuple(
            ChangeStep(
                verb="set",
                target=target.name,
                field=field,
                before=state[field],
                after=value,
                payload=json.dumps({field: value}),
                text=f"set {field} of {target.name} to {value}",
            )
            for field, value in wanted.items()
        )
        undo = tuple(
            ChangeStep(
                verb="set",
                target=target.name,
                field=step.field,
                before=step.after,
                after=step.before,
                payload=json.dumps({step.field: step.before}),
                text=f"set {step.field} of {target.name} to {step.before}",
            )
            for step in reversed(steps)
        )
        return Change(recommendation_digest=digest, target=target, steps=steps, undo=undo)

    def _mood(self, name: str) -> str:
        job = self.cluster.read(name)
        return "" if job is None else str(job["mood"])

    def _use_mood(self, name: str) -> str:
        mood, _, times = self._mood(name).partition("*")
        if times:
            self.cluster.change(name, mood=f"{mood}*{int(times) - 1}" if int(times) > 1 else "")
        return mood
