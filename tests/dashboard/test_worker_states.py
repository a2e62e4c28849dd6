"""Drawn lives of changes: faults, edits from outside, rollbacks, stops and dead workers at once.

TRIMTAB_WORKER_LIVES is how many are drawn.
"""

import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from beds.apply_bench import JOB, Bench, fill
from beds.file_cluster import FileCluster
from drawn import examples
from factories import make_plan, make_recommendation
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dashboard.apply.contract.kill_switch import resume, stop
from dashboard.apply.contract.wording import STATE_WORDS
from dashboard.apply.worker.progress import progress_of
from dashboard.resources.alerts import urgent_facts
from data.base.errors import StalePlanError
from data.records.lifecycle import OPEN, REVERSIBLE, STANDING_STATES, State
from data.settings.all_settings import Settings
from data.store import open_store

LIVES = int(os.environ.get("TRIMTAB_WORKER_LIVES", examples(10)))
MOODS = ("", "busy*2", "refuse*1", "cut*1", "lost*1", "deaf*1", "quota*1", "pending", "crashing",
         "unreadable", "down")  # fmt: skip

FAILURES = {State.FAILING, State.UNKNOWN, State.ROLLBACK_REFUSED}


class Lives(RuleBasedStateMachine):
    """One job in a cluster, its recommendations one after another, and a worker that may die."""

    def __init__(self) -> None:
        super().__init__()
        self.ending = ExitStack()
        folder = Path(self.ending.enter_context(tempfile.TemporaryDirectory()))
        cluster = FileCluster(folder / "cluster.json")
        cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
        store = self.ending.enter_context(open_store(f"duckdb:///{folder}/t.duckdb"))
        fill(store)
        self.bench = Bench(store, cluster, folder)
        self.bench.set(
            cool_down_minutes=0.0, rollout_timeout_minutes=0.3, max_namespace_share_ratio=1.0
        )
        self.made = 0
        self.edited = False

    @property
    def states(self) -> dict[str, State]:
        """What became of every recommendation."""
        return self.bench.store.reader.states()

    @precondition(lambda self: not any(state in OPEN for state in self.states.values()))
    @rule()
    def apply_the_next(self) -> None:
        """A recommendation for what the job has now, approved and asked for."""
        bench, self.made = self.bench, self.made + 1
        has = int(str(bench.job()["gpus"]))
        now = make_recommendation().now
        one = replace(
            make_recommendation(),
            plan_id=f"{self.made:064x}",
            created_at=bench.clock(),
            expires_at=bench.clock() + timedelta(days=365),
            now=replace(now, gpu_count=has),
            proposed=replace(now, gpu_count=has - 1 if has > 1 else 4),
        )
        bench.store.keep_cycle(
            cycle_id=f"life-{self.made}",
            started_at=bench.clock(),
            finished_at=bench.clock(),
            forecasts=(),
            plan=replace(make_plan(), plan_id=one.plan_id),
            recommendations=(one,),
        )
        bench.digest, self.edited = one.digest, False
        bench.approve()
        bench.ask()

    @rule(visits=st.integers(1, 12))
    def work(self, visits: int) -> None:
        """The worker is at work for some seconds."""
        self.bench.work(visits=visits)

    @rule(minutes=st.sampled_from((1, 20, 90)))
    def wait(self, minutes: int) -> None:
        """Time passes without a worker."""
        self.bench.clock.forward(minutes=minutes)

    @rule(mood=st.sampled_from(MOODS))
    def answer(self, mood: str) -> None:
        """The cluster answers like this from now on."""
        self.bench.cluster.change(JOB, mood=mood)

    @rule(gpus=st.sampled_from(("1", "4", "7")))
    def edit(self, gpus: str) -> None:
        """Somebody changes the job."""
        self.bench.cluster.change(JOB, gpus=gpus)
        self.edited = True

    @precondition(lambda self: self.states.get(self.bench.digest) in REVERSIBLE)
    @rule()
    def roll_back(self) -> None:
        """Somebody asks for the last change to be undone, wherever it is."""
        try:
            self.bench.roll_back()
        except StalePlanError:
            assert self.bench.state == State.ROLLED_BACK

    @rule()
    def stop_or_resume(self) -> None:
        """The kill switch is turned."""
        path = self.bench.folder / "STOP"
        if not resume(path):
            stop(path, by="Kim", reason="")

    @rule()
    def die(self) -> None:
        """A worker takes a command and dies with its lease; another one is started."""
        lasting = timedelta(minutes=3)
        self.bench.store.commands.take(owner="dead", now=self.bench.clock(), lasting=lasting)
        self.bench.worker = self.bench.new_worker()

    @invariant()
    def one_applied_row(self) -> None:
        """One object has at most one change that stands on it."""
        applied = STANDING_STATES - {State.ROLLBACK_REFUSED, State.UNKNOWN}
        assert sum(state in applied for state in self.states.values()) <= 1, self.states

    @invariant()
    def words_for_all(self) -> None:
        """Whatever the state, it has words, and the record of it is whole."""
        assert all(STATE_WORDS[state] for state in self.states.values())

    @precondition(lambda self: set(self.states.values()) & FAILURES)
    @invariant()
    def every_failure_is_an_alert(self) -> None:
        """Whoever is on call reads of it, with the finding; of no other change."""
        store, now = self.bench.store, self.bench.clock()
        facts = urgent_facts(store.reader, now=now, settings=Settings())
        alerts = {fact.digest for fact in facts if fact.kind == "change" and fact.finding}
        assert alerts == {digest for digest, state in self.states.items() if state in FAILURES}

    def teardown(self) -> None:
        """Once the trouble is over every command ends, and the original can be restored."""
        bench = self.bench
        with self.ending:
            resume(bench.folder / "STOP")
            bench.cluster.change(JOB, mood="")
            bench.clock.forward(minutes=5)
            bench.work(visits=150)
            assert not any(state in OPEN for state in self.states.values()), self.states
            self._restore()
            assert bench.store.reader.verify_audit() == ()

    def _restore(self) -> None:
        bench, state = self.bench, self.states.get(self.bench.digest)
        if self.edited or state not in REVERSIBLE - {State.ROLLED_BACK}:
            return
        apply = bench.store.reader.commands(bench.digest)[0].command
        original = progress_of(bench.store.reader.journal(command_id=apply.command_id)).change
        assert original is not None
        before = dict(original.target.state)
        sent = {step.field: step.after for step in original.steps}
        if str(bench.job()["gpus"]) not in (before["gpus"], sent["gpus"]):
            return  # the target stored another value: only a person can tell what it should be
        bench.roll_back()
        bench.work(visits=150)
        assert (bench.state, bench.job()["gpus"]) == ("rolled-back", before["gpus"])


Lives.TestCase.settings = settings(
    max_examples=LIVES,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLives = pytest.mark.slow(Lives.TestCase)
