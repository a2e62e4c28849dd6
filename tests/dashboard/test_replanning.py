"""Between two cycles: facts are collected, and a job that left its band calls for a new plan."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from beds.stores import filled
from factories import NOW, make_collected, make_job, make_samples

from collectors.shared.collector import Window
from dashboard.cycle.context import World
from dashboard.cycle.replanning import look_again, reasons_to_plan, surprises_since_plan
from dashboard.cycle.run_cycle import run_cycle
from dashboard.resources.alerts import urgent_facts
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.fleet import Node
from data.facts.jobs import JobState, SchedulerFacts
from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store, open_store
from planner.plan import build_plan

DAYS = 4


class Recorded:
    """A source that gives the samples of the window asked for."""

    name = "recorded"

    def __init__(self, samples: pd.DataFrame) -> None:
        self.samples = samples

    def collect(self, window: Window) -> Collected:
        """Return the part inside the window."""
        at = self.samples["sampled_at"]
        part = self.samples[(at > window.start) & (at <= window.end)]
        given = make_collected(part, jobs=(make_job(first_seen_at=NOW - timedelta(days=DAYS)),))
        return replace(given, report=replace(given.report, window_end=window.end))


def samples(after: float) -> pd.DataFrame:
    """Four days near 30 %, then three hours at `after`."""
    minutes = DAYS * 1440 + 180
    rng = np.random.default_rng(1)
    ratio = np.clip(rng.normal(0.3, 0.03, minutes), 0, 1)
    ratio[DAYS * 1440 :] = after
    return make_samples(minutes=minutes, end=NOW + timedelta(hours=3), utilization_ratio=ratio)


def world_of(store: Store, frame: pd.DataFrame, *, slot_minutes: int = 15) -> World:
    """A world whose only source is the recording."""
    planning = PlanningSettings(slot_minutes=slot_minutes, horizon_slots=24, budget_seconds=1)
    settings = replace(Settings(), planning=planning)
    return World(
        settings=settings,
        store=store,
        collectors=(Recorded(frame),),
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get("DEU"),
    )


def plan(store: Store, *, slot_minutes: int) -> None:
    """Keep the first plan of that job, made at NOW, for which nothing is reconsidered."""
    asked: list[frozenset[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        note_what_is_asked(asked, patch)
        run_cycle(world_of(store, samples(0.3), slot_minutes=slot_minutes), now=NOW)
    assert asked == [frozenset()]


PLAN = {minutes: partial(plan, slot_minutes=minutes) for minutes in (5, 15, 30)}
"""By the length of a slot: the samples up to NOW are the same, whatever comes after."""


def note_what_is_asked(asked: list[frozenset[str]], patch: pytest.MonkeyPatch) -> None:
    """Note of each plan that a cycle makes which jobs are reconsidered."""

    def noted(*given: Any, **chosen: Any) -> Plan:
        asked.append(chosen["reconsidered"])
        return build_plan(*given, **chosen)

    patch.setattr("dashboard.cycle.planning_facts.build_plan", noted)


@pytest.mark.parametrize(("after", "called"), [(0.3, False), (0.9, True), (0.0, True)])
def test_leaving_the_band_calls_for_a_plan(store_url: str, after: float, called: bool) -> None:
    """Three hours as foreseen do not; three hours at 90 % or at 0 % do, and facts are kept."""
    with filled(store_url, PLAN[15]) as store:
        world = world_of(store, samples(after))
        later: datetime = NOW + timedelta(hours=3)
        assert look_again(world, now=later) is called
        assert store.reader.latest_sample_at() == later
        found = surprises_since_plan(world, now=later)
    assert [surprise.side for surprise in found] == (
        [] if not called else ["above" if after > 0.3 else "below"]
    )
    assert all("the band" in surprise.reason for surprise in found)


@pytest.mark.parametrize(("after", "outside"), [(0.3, False), (0.9, True), (0.0, True)])
@pytest.mark.parametrize("slot_minutes", [5, 15, 30])
def test_a_cycle_plans_anew_what_left_its_interval(
    store_url: str, monkeypatch: pytest.MonkeyPatch, after: float, outside: bool, slot_minutes: int
) -> None:
    """One slot outside is enough for the next cycle, however long a slot is; inside, none is."""
    asked: list[frozenset[str]] = []
    with filled(store_url, PLAN[slot_minutes]) as store:
        note_what_is_asked(asked, monkeypatch)
        world = world_of(store, samples(after), slot_minutes=slot_minutes)
        run_cycle(world, now=NOW + timedelta(minutes=slot_minutes))
    assert asked == [frozenset({make_job().job_id} if outside else ())]


@pytest.mark.parametrize(("gib_per_hour", "called"), [(0.0, False), (4.0, False), (30.0, True)])
def test_memory_that_grows_to_its_board_calls_for_a_plan_that_tells_it(
    store_url: str, gib_per_hour: float, called: bool
) -> None:
    """A leak that begins after the cycle is seen before the next is due, told once, and urgent."""
    frame = samples(0.3)
    later = NOW + timedelta(minutes=45)
    grown = ((frame["sampled_at"] - NOW).dt.total_seconds() / 3600).clip(lower=0)
    board = float(frame["memory_total_mib"].iloc[0])
    frame["memory_used_mib"] = 0.7 * board + 1024 * gib_per_hour * grown
    with open_store(store_url) as store:
        world = world_of(store, frame)
        run_cycle(world, now=NOW)
        assert look_again(world, now=later) is called
        reasons = reasons_to_plan(world, now=later)
        assert all("may run out of memory at about" in reason for reason in reasons)
        assert len(reasons) == called
        run_cycle(world, now=later)
        assert reasons_to_plan(world, now=later) == ()
        urgent = [
            fact
            for fact in urgent_facts(store.reader, settings=world.settings, now=later)
            if fact.key.startswith("memory:")
        ]
    assert len(urgent) == called
    for fact in urgent:
        left = 0.985 * board - frame.loc[frame["sampled_at"] <= later, "memory_used_mib"].max()
        assert fact.at is not None
        due = later + timedelta(hours=left / 1024 / gib_per_hour)
        assert abs(fact.at - due) <= timedelta(minutes=5)


def node(*, schedulable: bool, at: datetime) -> Node:
    """The only node, as its scheduler describes it."""
    return Node(
        name="node-1",
        gpu_model="H100-SXM5-80GB",
        gpu_count=1,
        state="IDLE" if schedulable else "DRAINED",
        schedulable=schedulable,
        seen_at=at,
        source="test",
    )


def test_what_happens_to_jobs_and_nodes_calls_for_a_plan(store_url: str) -> None:
    """A new job, a job out of memory and a drained node are reasons; another plan ends them."""
    with filled(store_url, PLAN[15]) as store:
        world = world_of(store, samples(0.3))
        later = NOW + timedelta(minutes=15)
        frame = samples(0.3)
        recent = frame[(frame["sampled_at"] > NOW) & (frame["sampled_at"] <= later)]
        killed = SchedulerFacts(state=JobState.RUNNING, reason="OOMKilled")
        known = make_job(last_seen_at=later, scheduler=killed)
        new = make_job("a/new", first_seen_at=later, last_seen_at=later)
        assert reasons_to_plan(world, now=later) == ()
        store.keep(
            make_collected(recent, jobs=(known, new), nodes=(node(schedulable=False, at=later),))
        )
        assert reasons_to_plan(world, now=later) == (
            "a/new has come with 1 × H100-SXM5-80GB",
            "search/ranker-0 ran out of memory",
            "node node-1 takes no jobs any more: DRAINED",
        )
        run_cycle(world, now=later + timedelta(minutes=1))
        assert [reason for reason in reasons_to_plan(world, now=later) if "node-1" in reason] == []


def test_before_any_plan_nothing_is_a_surprise(store_url: str) -> None:
    """Facts without forecasts call for nothing."""
    with open_store(store_url) as store:
        store.keep(make_collected())
        assert surprises_since_plan(world_of(store, samples(0.3)), now=NOW) == ()
