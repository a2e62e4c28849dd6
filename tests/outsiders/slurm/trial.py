"""One scenario on the real cluster, through the real worker, judged by what scontrol says."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock, Timer

from beds.apply_bench import whatever_it_saves
from beds.slurm_apply import GPU_MODELS, MODEL
from factories import make_plan, make_recommendation
from outsiders.slurm import oracle
from outsiders.slurm.judged import Judged

from dashboard.apply.slurm.change.applier import SlurmApplier
from dashboard.apply.worker.worker import Worker
from dashboard.decisions import approvals
from data.base.clock import utc_now
from data.base.errors import StalePlanError
from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.changes import Change, ChangeStep, StepResult
from data.records.lifecycle import OPEN, State
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.settings.apply import SlurmApplySettings
from data.settings.sources import SlurmSettings
from data.store import Store, open_store

PATIENCE_SECONDS = 240.0
_DOWN_SECONDS = 3.0
_STORE = Lock()


class DiedError(BaseException):
    """The worker was killed here: nothing of it runs any further."""


class NoJobError(Exception):
    """Slurm itself takes no such job, or has no room for it now: there is nothing to try."""


class StruckApplier(SlurmApplier):
    """The applier, with a strike before or after the Nth command it sends."""

    def aim(self, trial: "Trial") -> None:
        """Say whose scenario this is."""
        self._trial, self._sent = trial, 0

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Send one command, unless the strike comes first."""
        number, self._sent = self._sent, self._sent + 1
        if number == self._trial.scenario.at:
            self._trial.strike()
            if self._trial.dies("before"):
                raise DiedError
        if number == self._trial.scenario.at and self._trial.dies("told"):
            self._trial.told = True
        result = super().execute(step, change)
        if number == self._trial.scenario.at and self._trial.dies("after"):
            raise DiedError
        return result


@dataclass(kw_only=True)
class Trial(Judged):
    """A scenario under way."""

    folder: Path
    blocker: str
    skew: timedelta = timedelta()
    died: bool = False
    told: bool = False
    return_of_controller: Timer | None = None
    outcome: str = ""
    why: str = ""
    left: str | None = None

    def run(self) -> str | None:
        """Return what the scenario broke, None when every promise held."""
        try:
            self.submit()
            self.reach_start()
        except NoJobError as error:
            self.outcome = f"no job: {error}"
            return None
        with _STORE:
            store = open_store(f"duckdb:///{self.folder}/t.duckdb")
        try:
            return self.apply_and_roll_back(store)
        except NoJobError as error:
            self.outcome = f"no job: {error}"
            return None
        finally:
            self.await_controller()
            store.close()
            self.bed.run("scancel", "--quiet", self.job, check=False)

    def apply_and_roll_back(self, store: Store) -> str | None:
        """Return what broke on the way there or back."""
        recommendation = self.recommendation()
        applier = self.applier()
        now = self.clock()
        with _STORE:
            store.keep_cycle(
                cycle_id="c1", started_at=now, finished_at=now, forecasts=(),
                plan=make_plan(), recommendations=(recommendation,),
            )  # fmt: skip
        digest = recommendation.digest
        approvals.approve(store, digest, by="Robin", now=now)
        approvals.ask_to_apply(store, digest, by="Robin", now=now, appliers=(applier,))
        if self.scenario.at == -1:
            self.strike()
        state = self.work(store, digest, applier)
        if self.left:
            return self.told_why(store, digest, f"told to end, {self.left}")
        self.outcome = f"{self.scenario.action} {state}"
        self.why = store.reader.journal(digest=digest)[-1].detail
        self.settle()
        if (wrong := self.after_apply(State(state))) or not self.scenario.back:
            return self.told_why(store, digest, wrong)
        try:
            approvals.ask_to_roll_back(store, digest, by="Robin", now=self.clock())
        except StalePlanError:
            return None
        state = self.work(store, digest, applier)
        self.outcome += f", {state}"
        self.settle()
        return self.told_why(store, digest, self.after_rollback(State(state)))

    def told_why(self, store: Store, digest: str, wrong: str | None) -> str | None:
        """Return what broke, with the journal that led there."""
        if wrong is None:
            return None
        rows = store.reader.journal(digest=digest)
        return wrong + "".join(f"\n      {row.event} {row.step} {row.detail}" for row in rows)

    # The job

    def submit(self) -> None:
        """Submit the job. Errors: NoJobError."""
        scenario = self.scenario
        stays = scenario.start in ("waits", "held", "depends", "later")
        where = ["-pfull" if stays else "-popen", "-o/dev/null", "--parsable"]
        if scenario.start == "depends":
            where.append(f"--dependency=afterok:{self.blocker}")
        further = [":", *scenario.options(), *where[:1]] if scenario.het else []
        said = self.bed.run(
            "sbatch", *where, *scenario.options(), *further, "--wrap=sleep 3600", check=False
        )
        if not said:
            raise NoJobError("refused by sbatch")
        self.job = said.partition(";")[0]

    def reach_start(self) -> None:
        """Bring the job where the scenario starts. Errors: NoJobError."""
        start = self.scenario.start
        if start in ("runs", "suspended", "over"):
            self.wait_for("RUNNING")
        if start == "suspended":
            self.bed.run("scontrol", "suspend", self.job, check=False)
            self.wait_for("SUSPENDED")
        if start == "over":
            self.bed.run("scancel", self.job)
            ended = {"CANCELLED", "PENDING"}
            self.wait(lambda: {shown["JobState"] for shown in self.show().values()} <= ended)
        if start == "waits":
            self.wait(lambda: next(iter(self.show().values()))["Reason"] != "None")
        self.before = self.show()
        self.approved = {number: dict(shown) for number, shown in self.before.items()}

    def wait_for(self, state: str) -> None:
        """Wait for a state. Errors: NoJobError."""
        self.wait(lambda: any(entry["JobState"] == state for entry in self.show().values()))

    def wait(self, holds: Callable[[], bool], seconds: float = 25.0) -> None:
        """Wait until it holds. Errors: NoJobError: no room, or it sticks by itself."""
        ends = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > ends:
                self.bed.run("scancel", "--quiet", self.job, check=False)
                raise NoJobError(f"no {self.scenario.start}")
            time.sleep(0.2)

    # Time and strikes

    def clock(self) -> datetime:
        """Return the worker's time, which runs ahead while nothing is due."""
        return utc_now() + self.skew

    def dies(self, when: str) -> bool:
        """Tell whether the worker dies now, which it does once."""
        if self.scenario.dies != when or self.died:
            return False
        self.died = True
        return True

    def strike(self) -> None:
        """Let happen what the scenario names, once."""
        if self.struck:
            return
        self.struck = True
        if self.scenario.outage:
            if self.scenario.outage == "kill":
                self.bed.daemons["slurmctld"].kill()
            self.bed.end("slurmctld")
            self.return_of_controller = Timer(_DOWN_SECONDS, self.bring_back)
            self.return_of_controller.start()
        elif self.scenario.meanwhile:
            then = self.show()
            self.bed.run(*self.command(), check=False)
            now = self.show()
            for number, shown in now.items():
                was, base = then.get(number, {}), self.before.setdefault(number, dict(shown))
                base.update({key: value for key, value in shown.items() if was.get(key) != value})

    def command(self) -> list[str]:
        """Return what somebody else runs meanwhile."""
        update = ["scontrol", "update", f"JobId={self.mine}"]
        return {
            "gres": [*update, "Gres=gpu:h100:5"],
            "nodes": [*update, "NumNodes=1-1"],
            "limit": [*update, "TimeLimit=7"],
            "partition": [*update, "Partition=other"],
            "comment": [*update, "Comment=mine"],
            "start": [*update, "Partition=open"],
            "hold": ["scontrol", "uhold", self.job],
            "release": ["scontrol", "release", self.job],
            "requeue": ["scontrol", "requeue", self.job],
            "cancel": ["scancel", self.job],
        }[self.scenario.meanwhile]

    # The change

    def recommendation(self) -> Recommendation:
        """Return the recommendation, made of what the oracle sees now."""
        scenario = self.scenario
        has = max(1, oracle.total(self.before[self.mine]))
        wanted, action, details = has, Action.TIME_LIMIT, ()
        if scenario.action == "limit":
            details = (("time_limit_seconds", str(60 * (scenario.minutes - 5))),)
        elif scenario.action == "later":
            action = Action.SHIFT_IN_TIME
            begin = (utc_now() + timedelta(hours=3)).replace(microsecond=0)
            details = (("begin_at", begin.isoformat()),)
        elif scenario.action == "reclaim":
            action, wanted = Action.RECLAIM, 0
        elif scenario.action == "type":
            action = Action.SMALLER_GPU
        else:
            wanted = scenario.wanted
            action = Action.FEWER_GPUS if wanted < has else Action.SCALE_OUT
        model = "A100-SXM4-80GB" if scenario.action == "type" else MODEL
        return make_recommendation(
            plan_id="p" * 64,
            job_id=f"slurm:{self.mine}",
            platform=Platform.SLURM,
            action=action,
            created_at=self.clock() + timedelta(seconds=1),
            expires_at=self.clock() + timedelta(hours=24),
            now=Configuration(gpu_model=MODEL, gpu_count=has),
            proposed=Configuration(gpu_model=model, gpu_count=wanted),
            details=details,
        )

    def applier(self) -> StruckApplier:
        """Return the applier of the scenario's interface."""
        rest = self.scenario.mode == "rest"
        made = StruckApplier(
            SlurmApplySettings(
                enabled=True,
                rest_user=self.bed.plan.user,
                rest_token=self.bed.token() if rest else "",
                allow_requeue=self.scenario.consent,
            ),
            source=SlurmSettings(
                conf_file=str(self.bed.conf), rest_url=self.bed.rest_url, gpu_models=GPU_MODELS
            ),
        )
        made.aim(self)
        return made

    def work(self, store: Store, digest: str, applier: StruckApplier) -> str:
        """Let workers work until the outcome is known, and return it."""
        settings = Settings()
        apply = replace(
            settings.apply, enabled=True, stop_file=str(self.folder / "STOP"),
            watch_minutes=0.0, cool_down_minutes=0.0, max_per_hour=1000,
            max_namespace_share_ratio=1.0,
        )  # fmt: skip
        settings = replace(settings, apply=apply)

        def worker() -> Worker:
            return Worker(
                store=store,
                settings=lambda: settings,
                appliers=lambda _settings: (applier,),
                clock=self.clock,
                stopping=lambda: self.told,
            )

        working, ends = worker(), time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with whatever_it_saves():
                    busy = working.work_once()
            except DiedError:
                # Nobody renews its lease: the next worker takes over once that has run out.
                working, busy, self.skew = worker(), True, self.skew + timedelta(minutes=4)
            if self.told and not working.unsafe:
                # The worker that was told to end goes; the next one comes minutes later.
                self.left = self.left_behind(self.show(), requeues=2) if self.calm() else None
                self.told = False
                working, busy, self.skew = worker(), True, self.skew + timedelta(minutes=4)
            state = store.reader.recommendation(digest, now=self.clock()).state
            if State(state) not in OPEN:
                self.await_controller()
                return state
            if time.monotonic() > ends:
                held = store.reader.commands(digest)[-1].held
                self.require_changeable(held)
                raise AssertionError(f"still {state} after {PATIENCE_SECONDS:g} s: {held}")
            if not busy:
                time.sleep(0.1)
                self.skew += timedelta(seconds=1)

    def require_changeable(self, held: str) -> None:
        """Raise where Slurm itself changes nothing of the job any more, and the worker says so.

        22.05.8 loses a job that slurmdbd had not recorded when the controller went down.

        Errors: NoJobError.
        """
        said = self.bed.words("scontrol", "update", f"JobId={self.mine}", "Comment=asked")
        if self.scenario.outage and "DB index is being set" in said and "slurmdbd" in held:
            raise NoJobError("lost by Slurm in the outage")

    def bring_back(self) -> None:
        """Start the controller again."""
        self.bed.spawn("slurmctld", "slurmctld", "-D")

    def await_controller(self) -> None:
        """Wait until the controller is back where the scenario took it down."""
        if self.return_of_controller is None:
            return
        self.return_of_controller.join()
        self.bed.until(
            "slurmctld", lambda: "is UP" in self.bed.run("scontrol", "ping", check=False)
        )

    def settle(self) -> None:
        """Wait until a requeued job is eligible again and the scheduler has looked."""

        def at_rest() -> bool:
            mine = self.show().get(self.mine)
            if mine is None or mine["JobState"] != "PENDING":
                return mine is None or "COMPLETING" not in mine["JobState"]
            return (
                mine["Reason"] not in ("None", "BeginTime")
                or self.scenario.start == "later"
                or self.scenario.action == "later"
            )

        ends = time.monotonic() + 30
        while not at_rest() and time.monotonic() < ends:
            time.sleep(0.2)
