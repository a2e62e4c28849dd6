"""What a cycle proposes for a real cluster, and what the appliers say to it.

The cluster is real and its jobs are a minute old; the readings of their boards are drawn for the
days before. The oracle is the applier's own look, change and rehearsal on the cluster.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
from factories import make_collected, make_samples

from collectors.shared.collector import Collector, Window
from dashboard.apply.contract.applier import Applier
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from data.base.clock import utc_now
from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.energy import EnergySettings
from data.store import open_store

PAST = timedelta(days=2)
STEP_MINUTES = 10
MAX_REFUSED_RATIO = 0.05
LEVELS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_PRICES = ",".join(["0.9"] * 12 + ["0.1"] * 12)
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


KEPT = "where its manifest is kept"
"""In the words of a proposal and of a refusal, for what others would undo."""


@dataclass
class Proposals:
    """What was proposed and covered by the applier, and what it refused, over several fleets.

    `by_hand` counts what is refused as the proposal itself said: to be changed in its manifest.
    """

    covered: Counter[str] = field(default_factory=Counter)
    by_hand: int = 0
    refused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return one line, for docs/reliability.md."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.covered.items()))
        by_hand = f", {self.by_hand} more to be made in their manifests" if self.by_hand else ""
        return f"{self.covered.total()} proposals ({kinds}), {len(self.refused)} refused{by_hand}"

    def judge(self, applier: Applier, proposals: Sequence[Recommendation], said: str) -> None:
        """Ask the applier of every proposal that it covers."""
        for proposal in proposals:
            if applier.covers(proposal):
                why = refusal_of(applier, proposal)
                said_so = any(KEPT in note for note in proposal.evidence.fallbacks)
                if said_so and KEPT in why:
                    self.by_hand += 1
                    continue
                self.covered[proposal.action] += 1
                if why:
                    shown = f"{proposal.target} {proposal.now.describe()} -> {proposal.summary}"
                    self.refused.append(f"{said}: {shown}: {why}")

    def require_few_refused(self, min_covered: int) -> None:
        """Fail where more than one of twenty is refused, or where too little is proposed."""
        assert self.covered.total() >= min_covered, self
        few = len(self.refused) <= MAX_REFUSED_RATIO * self.covered.total()
        assert few, "\n".join((str(self), *self.refused))


def refusal_of(applier: Applier, one: Recommendation) -> str:
    """Return why the applier does not take a recommendation, '' when it does."""
    try:
        change = applier.change_for(one, applier.look(one, job=None, gpus=()))
        rehearsal = applier.rehearse(change)
    except (ApplyError, ChangeRefusedError, StalePlanError) as refusal:
        return str(refusal)
    return "; ".join((*rehearsal.refusals, *(str(each) for each in rehearsal.differences)))


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


def proposed(
    folder: Path,
    collector: Collector,
    samples: pd.DataFrame,
    *,
    slot_minutes: int,
    settings: Settings,
) -> Sequence[Recommendation]:
    """Return what a cycle of the product recommends, from the scheduler and these readings."""
    planning = PlanningSettings(
        slot_minutes=slot_minutes,
        horizon_slots=min(48, 24 * 60 // slot_minutes),
        history_days=2,
        budget_seconds=2,
        shift_slack_hours=4.0,
    )
    energy = EnergySettings(region="DEU", electricity_price_by_hour=_PRICES)
    with open_store(f"duckdb:///{folder}/proposals.duckdb") as store:
        store.keep(make_collected(samples, jobs=()))
        world = World(
            settings=replace(settings, planning=planning, energy=energy),
            store=store,
            collectors=(OlderJobs(collector),),
            catalogue=load_gpu_catalogue(),
            carbon=load_carbon_table().get("DEU"),
        )
        return run_cycle(world, now=utc_now() + timedelta(seconds=1)).recommendations
