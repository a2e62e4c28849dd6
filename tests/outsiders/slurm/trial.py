"""One scenario on the real cluster, through the real worker, judged by what scontrol says."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock, Timer

from beds.slurm import SlurmBed
from beds.slurm_apply import GPU_MODELS, MODEL
from factories import make_plan, make_recommendation
from outsiders.slurm import oracle
from outsiders.slurm.scenario import SlurmScenario

from dashboard import decisions
from dashboard.apply.slurm.applier import SlurmApplier
from dashboard.apply.worker import Worker
from data.apply_settings import SlurmApplySettings
from data.clock import utc_now
from data.errors import StalePlanError
from data.records.changes import Change, ChangeStep, StepResult
from data.records.decisions import Action, Recommendation
from data.records.jobs import Platform
from data.records.lifecycle import OPEN, State
from data.records.plans import Configuration
from data.settings import Settings
from data.store import Store, open_store

PATIENCE_SECONDS = 240.0
_DOWN_SECONDS = 3.0
_STORE = Lock()
Records = dict[str, oracle.Shown]


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


@dataclass
class Trial:
    """A scenario under way."""

    bed: SlurmBed
    scenario: SlurmScenario
    folder: Path
    blocker: str
    job: str = ""
    skew: timedelta = timedelta()
    before: Records = field(default_factory=dict)
    struck: bool = False
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
                cycle_id="c1", started_at=now, finished_at=now, reports=(), forecasts=(),
                plan=make_plan(), recommendations=(recommendation,),
            )  # fmt: skip
        digest = recommendation.digest
        decisions.approve(store, digest, by="Robin", now=now)
        decisions.ask_to_apply(store, digest, by="Robin", now=now, appliers=(applier,))
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
            decisions.ask_to_roll_back(store, digest, by="Robin", now=self.clock())
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

    def show(self) -> Records:
        """Return the job's records by number, those of an array or a het job included."""
        text = self.bed.run("scontrol", "-o", "-d", "show", "job", self.job, check=False)
        found = (oracle.read(line) for line in text.splitlines() if "JobId=" in line)
        return {entry["JobId"]: entry for entry in found}

    @property
    def mine(self) -> str:
        """The number of the record that the recommendation names."""
        return next(iter(self.before))

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
                mode=self.scenario.mode,
                conf_file=str(self.bed.conf),
                rest_url=self.bed.rest_url,
                rest_user=self.bed.plan.user,
                rest_token=self.bed.token() if rest else "",
                allow_requeue=self.scenario.consent,
                timeout_seconds=30.0,
            ),
            gpu_models=GPU_MODELS,
        )
        made.aim(self)
        return made

    def work(self, store: Store, digest: str, applier: StruckApplier) -> str:
        """Let workers work until the outcome is known, and return it."""
        settings = Settings()
        apply = replace(
            settings.apply, enabled=True, stop_file=str(self.folder / "STOP"), poll_seconds=1.0,
            watch_minutes=0.0, cool_down_minutes=0.0, max_per_hour=1000,
            max_namespace_share_ratio=1.0, min_gpu_hours=0.0, min_energy_kwh=0.0,
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
                raise AssertionError(f"still {state} after {PATIENCE_SECONDS:g} s: {held}")
            if not busy:
                time.sleep(0.1)
                self.skew += timedelta(seconds=1)

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

    # What was promised

    def calm(self) -> bool:
        """Tell whether nobody else touched the job and the controller was there."""
        return not (self.struck and (self.scenario.meanwhile or self.scenario.outage))

    def after_apply(self, state: State) -> str | None:
        """Return what an apply that ended in this state broke."""
        after = self.show()
        odd = (State.UNKNOWN, State.FAILING, State.APPLIED_DIFFERENTLY)
        if state in odd and self.calm():
            return f"ended as {state} though nothing happened meanwhile"
        if wrong := self.left_behind(after, requeues=1):
            return wrong
        if state is State.REFUSED:
            return self.unlike(after, set(), "refused, yet")
        if state is State.APPLIED:
            return self.as_promised(after)
        return None

    def after_rollback(self, state: State) -> str | None:
        """Return what a rollback that ended in this state broke."""
        after = self.show()
        if wrong := self.left_behind(after, requeues=2):
            return wrong
        stays = self.before[self.mine]["JobState"] == "PENDING"
        odd = state in (State.UNKNOWN, State.FAILING, State.APPLIED, State.APPLIED_DIFFERENTLY)
        if self.calm() and (odd or (stays and state is State.ROLLBACK_REFUSED)):
            return f"the rollback ended as {state} though nothing happened meanwhile"
        if state is State.ROLLED_BACK:
            mine = after.get(self.mine, {})
            requeued = mine.get("Restarts") != self.before[self.mine].get("Restarts")
            moved = mine.get("JobState") != self.before[self.mine]["JobState"]
            allowed = oracle.RUN if requeued else set()
            by_node = self.scenario.form in ("gres", "gpus-per-node") and self.scenario.nodes
            if (
                requeued
                and not moved
                and oracle.total(mine) != oracle.total(self.before[self.mine])
            ):
                return f"rolled back, yet it runs with {mine['TRES']}"
            if moved or (requeued and not by_node):
                allowed = allowed | {"NumNodes", "NumTasks", "NumCPUs", "TRES", "Priority"}
            return self.unlike(after, allowed, "rolled back, yet")
        return None

    def left_behind(self, after: Records, *, requeues: int) -> str | None:
        """Return whether a job is held or stuck, or was requeued too often."""
        # Slurm itself holds a suspended job that somebody requeues (JobHeldAdmin).
        requeue_holds = self.scenario.start == "suspended" and self.scenario.meanwhile == "requeue"
        for number, shown in after.items():
            base = self.before.get(number, shown)
            why = oracle.stuck(shown)
            if why and not oracle.stuck(base) and not (requeue_holds and self.struck):
                return f"job {number} is left {why}"
        restarts = int(after.get(self.mine, {}).get("Restarts", 0))
        if restarts - int(self.before[self.mine].get("Restarts", 0)) > requeues:
            return f"requeued {restarts} times"
        return None

    def unlike(self, after: Records, allowed: set[str], said: str) -> str | None:
        """Return the fields of any record that differ and may not."""
        if self.scenario.meanwhile in ("cancel", "requeue", "start") and self.struck:
            return None
        if self.scenario.memory == "--mem-per-gpu=70":
            # 22.05 shows the partition's default beside it, or not, after any update.
            allowed = allowed | {"MinMemoryCPU", "MinMemoryNode"}
        for number, base in self.before.items():
            shown = after.get(number)
            if shown is None:
                continue  # over and forgotten
            if self.scenario.array and base["JobState"] == "PENDING" and self.runs(number):
                continue  # tasks start one by one, whatever is done to others
            mine = allowed if number == self.mine else set()
            if wrong := oracle.differing(base, shown, allowed=mine):
                return f"{said} of job {number}: {'; '.join(wrong)}"
        return None

    def runs(self, number: str) -> bool:
        """Tell whether a record of an array stands for tasks that start by themselves."""
        return number != self.mine or self.scenario.start in ("runs", "suspended")

    def as_promised(self, after: Records) -> str | None:
        """Return what an applied change did beside its promise, or did not do."""
        mine, base = after.get(self.mine), self.before[self.mine]
        action = self.scenario.action
        if mine is None:
            return None if action == "reclaim" else "applied, and the job is gone"
        if self.scenario.meanwhile in ("cancel", "requeue", "start") and self.struck:
            return None
        requeued = mine.get("Restarts") != base.get("Restarts")
        allowed = {
            "limit": {"TimeLimit"},
            "later": {"StartTime"},
            "reclaim": oracle.RUN | {"Priority"} | oracle.SIZE,
        }.get(action, oracle.SIZE | (oracle.RUN if requeued else oracle.HELD_GPUS))
        if wrong := self.unlike(after, allowed, "applied, yet"):
            return wrong
        if action == "reclaim":
            return None if mine["JobState"] in ("CANCELLED", "COMPLETING") else "not cancelled"
        if action == "limit":
            left = int(self.scenario.minutes) - 5
            said = mine["TimeLimit"]
            return None if said == f"{left // 60:02}:{left % 60:02}:00" else f"TimeLimit {said}"
        if action == "gpus" and oracle.total(mine) != self.scenario.wanted:
            return f"{oracle.total(mine)} GPUs instead of {self.scenario.wanted}: {mine['TRES']}"
        return None
