"""What cycles propose for a real cluster, and what of it can be made.

The cluster is real and its jobs are a minute old; the readings of their boards are drawn for the
days before. Every proposal is approved and applied by the product's own worker, and a second cycle
plans what is left. The oracle is the state that the worker reads back from the cluster.
"""

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
from beds.apply_bench import whatever_it_saves
from factories import make_collected, make_samples

from collectors.shared.collector import Collector, Window
from dashboard.apply.contract.applier import Applier
from dashboard.apply.worker.worker import Worker
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from dashboard.decisions import approvals
from data.base.clock import utc_now
from data.base.errors import TrimtabError
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.records.lifecycle import OPEN, State
from data.records.recommendations import Recommendation, in_named_order
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.apply import ApplySettings
from data.settings.energy import EnergySettings
from data.store import Store

PAST = timedelta(days=2)
STEP_MINUTES = 10
MIN_MADE_RATIO = 0.97
LEVELS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_PRICES = ("0.9",) * 2 + ("0.1",) * 12 + ("0.9",) * 10
"""EUR/kWh by hour from the hour of the cycle on: work that waits two hours costs less."""
Boards = Mapping[tuple[str, int], str]
"""The job of each board by node and index, '' where it is free."""


class OlderJobs:
    """A collector whose jobs began before their readings: on the cluster they are a minute old."""

    def __init__(self, collector: Collector) -> None:
        self.collector, self.name = collector, collector.name

    def collect(self, window: Window) -> Collected:
        """Return what the scheduler says but for the times of the beginning."""
        found = self.collector.collect(window)
        jobs = tuple(
            replace(job, scheduler=replace(job.scheduler, submitted_at=None))
            for job in found.jobs
            if job.scheduler is not None
        )
        held = found.allocations.assign(started_at=found.allocations["started_at"] - PAST)
        return replace(found, jobs=jobs, allocations=held)


BY_HAND = "where its manifest is kept"
"""In the words of a proposal and of a refusal, for what others would undo."""
MADE = frozenset({State.APPLIED, State.VERIFIED, State.FELL_SHORT})
CYCLES = ("first", "second")
_TO_ITS_END = timedelta(minutes=4)


@dataclass
class Proposals:
    """What was proposed, and what of it was made, over several fleets.

    Money is the central saving in the currency of the settings, over the horizon of each proposal,
    by cycle; what loses money counts nothing. `by_hand` counts what is refused as the proposal
    itself said: to be changed in its manifest.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    by_hand: int = 0
    shown: Counter[str] = field(default_factory=Counter)
    made: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return one line, for docs/reliability.md."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        by_hand = f", {self.by_hand} more to be made in their manifests" if self.by_hand else ""
        money = ", ".join(
            f"{name} cycle {self.made[name]:.0f} of {self.shown[name]:.0f} EUR" for name in CYCLES
        )
        return (
            f"{self.kinds.total()} proposals ({kinds}), {len(self.failures)} not made{by_hand}; "
            f"made: {money}"
        )

    def judge(self, cycle: str, fleet: str, outcomes: "Sequence[Outcome]") -> None:
        """Count what a cycle proposed by what became of it."""
        for outcome in outcomes:
            proposal = outcome.proposal
            said_so = any(BY_HAND in note for note in proposal.evidence.fallbacks)
            if said_so and BY_HAND in outcome.why:
                self.by_hand += 1
                continue
            self.kinds[proposal.action] += 1
            money = max(0.0, proposal.savings.cost.central) if proposal.savings.cost else 0.0
            self.shown[cycle] += money
            self.made[cycle] += money * (outcome.state in MADE)
            if outcome.state not in MADE:
                text = f"{proposal.target} {proposal.now.describe()} -> {proposal.summary}"
                self.failures.append(
                    f"{fleet}, {cycle} cycle, {money:.2f} EUR: {text}: "
                    f"{outcome.state}: {outcome.why}"
                )

    def require_made(self, min_count: int) -> None:
        """Fail where less than 97 % of the money of a cycle was made, or little was proposed."""
        assert self.kinds.total() >= min_count, self
        short = [name for name in CYCLES if self.made[name] < MIN_MADE_RATIO * self.shown[name]]
        assert not short, "\n".join((str(self), *self.failures))


@dataclass(frozen=True)
class Outcome:
    """A proposal, and the state and last words of the worker that was told to apply it."""

    proposal: Recommendation
    state: State
    why: str


@dataclass(kw_only=True)
class Fleet:
    """A real cluster, its store, and the cycles and the worker of the product upon it.

    `slot_minutes` is the length of a slot; `skew` how far the clock of the worker is ahead.
    """

    store: Store
    collector: Collector
    applier: Applier
    settings: Settings
    folder: Path
    slot_minutes: int
    skew: timedelta = timedelta(seconds=1)

    def now(self) -> datetime:
        """Return the time of the fleet."""
        return utc_now() + self.skew

    def cycle(self, samples: pd.DataFrame | None = None) -> Sequence[Recommendation]:
        """Return what a cycle recommends, from the scheduler and these further readings."""
        planning = PlanningSettings(
            slot_minutes=self.slot_minutes,
            horizon_slots=min(48, 24 * 60 // self.slot_minutes),
            history_days=2,
            budget_seconds=2,
            shift_slack_hours=4.0,
        )
        hour = self.now().hour
        prices = ",".join(_PRICES[-hour:] + _PRICES[:-hour])
        energy = EnergySettings(region="DEU", electricity_price_by_hour=prices)
        if samples is not None:
            self.store.keep(make_collected(samples, jobs=()))
        world = World(
            settings=replace(self.settings, planning=planning, energy=energy),
            store=self.store,
            collectors=(self.collector,),
            catalogue=load_gpu_catalogue(),
            carbon=load_carbon_table().get("DEU"),
        )
        return run_cycle(world, now=self.now()).recommendations

    def apply(self, proposals: Sequence[Recommendation]) -> list[Outcome]:
        """Approve all that the applier covers, let a worker carry it out, return what became of it.

        What neither ends nor waits for its proposed begin within four minutes stays as it is then.
        """
        mine = in_named_order(
            [one for one in proposals if not one.is_advice and self.applier.covers(one)]
        )
        outcomes = []
        for one in mine:
            try:
                approvals.approve(self.store, one.digest, by="Robin", now=self.now())
                approvals.ask_to_apply(
                    self.store, one.digest, by="Robin", now=self.now(), appliers=(self.applier,)
                )
            except TrimtabError as refusal:
                outcomes.append(Outcome(one, State.REFUSED, str(refusal)))
        refused = {outcome.proposal.digest for outcome in outcomes}
        asked = [one for one in mine if one.digest not in refused]
        self.work([one.digest for one in asked])
        return outcomes + [self.outcome(one) for one in asked]

    def outcome(self, proposal: Recommendation) -> Outcome:
        """Return what became of a proposal."""
        state = self.store.reader.recommendation(proposal.digest, now=self.now()).state
        rows = self.store.reader.journal(digest=proposal.digest)
        held = [status.held for status in self.store.reader.commands(proposal.digest)]
        return Outcome(
            proposal, State(state), "; ".join(filter(None, (*(r.detail for r in rows[-1:]), *held)))
        )

    def work(self, digests: Sequence[str]) -> None:
        """Let a worker work until no command is under way, or for four minutes."""
        apply = ApplySettings(
            enabled=True,
            stop_file=str(self.folder / "STOP"),
            watch_minutes=0.0,
            cool_down_minutes=0.0,
            max_per_hour=10_000,
            max_namespace_share_ratio=1.0,
        )
        settings = replace(self.settings, apply=apply)
        worker = Worker(
            store=self.store,
            settings=lambda: settings,
            appliers=lambda _settings: (self.applier,),
            clock=self.now,
        )
        with whatever_it_saves():
            ends = time.monotonic() + _TO_ITS_END.total_seconds()
            while time.monotonic() < ends:
                states = self.store.reader.states()
                if not any(State(states[digest]) in OPEN for digest in digests):
                    return
                if not worker.work_once():
                    time.sleep(0.1)
                    self.skew += timedelta(seconds=1)


def readings(
    boards: Boards, models: Mapping[str, str], source: random.Random, end: datetime
) -> pd.DataFrame:
    """Return two days of readings of all boards; `models` by node. Each workload has its level."""
    catalogue = load_gpu_catalogue()
    workloads = sorted({job.partition("/")[0] for job in boards.values()} - {""})
    levels = {name: source.choice(LEVELS) for name in workloads}
    memory = {name: source.choice((0.02, 0.1, 0.3, 0.6)) for name in workloads}
    count = int(PAST.total_seconds() / 60) // STEP_MINUTES
    times = pd.date_range(end=end, periods=count, freq=f"{STEP_MINUTES}min").as_unit("us")
    day = 1 + 0.2 * np.sin(np.arange(count) * STEP_MINUTES * 2 * np.pi / 1440)
    frames = []
    for (node, index), job in sorted(boards.items()):
        model = catalogue.get(models[node])
        name = job.partition("/")[0]
        used = np.clip(levels.get(name, 0.0) * day, 0, 1)
        frames.append(
            make_samples(
                minutes=count,
                end=end,
                job_id=job,
                gpu_uuid=f"GPU-{node}-{index}",
                gpu_index=str(index),
                node=node,
                gpu_model=model.name,
                utilization_ratio=used,
                memory_used_mib=memory.get(name, 0.004) * model.memory_mib,
                memory_total_mib=float(model.memory_mib),
                power_watts=model.idle_watts + 0.8 * used * (model.tdp_watts - model.idle_watts),
            ).assign(sampled_at=times)
        )
    return pd.concat(frames, ignore_index=True)
