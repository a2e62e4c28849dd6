"""What a scenario's outcome is held against: what was promised, as scontrol shows the job."""

from dataclasses import dataclass, field

from beds.slurm import SlurmBed
from outsiders.slurm import oracle
from outsiders.slurm.scenario import SlurmScenario

from data.records.lifecycle import State

Records = dict[str, oracle.Shown]


@dataclass(kw_only=True)
class Judged:
    """A job of a scenario and how it was before; every judgement returns what broke, or None.

    `before` has what somebody else changed meanwhile, `approved` has not.
    """

    bed: SlurmBed
    scenario: SlurmScenario
    job: str = ""
    before: Records = field(default_factory=dict)
    approved: Records = field(default_factory=dict)
    struck: bool = False

    def show(self) -> Records:
        """Return the job's records by number, those of an array or a het job included."""
        text = self.bed.run("scontrol", "-o", "-d", "show", "job", self.job, check=False)
        found = (oracle.read(line) for line in text.splitlines() if "JobId=" in line)
        return {entry["JobId"]: entry for entry in found}

    @property
    def mine(self) -> str:
        """The number of the record that the recommendation names."""
        return next(iter(self.before))

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
            wrong = self.unlike(after, allowed, "rolled back, yet")
            return None if wrong and self.is_as_approved(after, allowed) else wrong
        return None

    def is_as_approved(self, after: Records, allowed: set[str]) -> bool:
        """Tell whether a job whose size was changed, by us and by others, has the approved one.

        Where somebody set the very value that the change sets, the rollback restores the approved.
        """
        if self.scenario.action != "gpus" or not self.struck:
            return False
        approved = self.approved[self.mine]
        sizes = {key: value for key, value in approved.items() if key in oracle.SIZE}
        first = self.before[self.mine] | sizes
        return not oracle.differing(first, after.get(self.mine, {}), allowed=allowed)

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
