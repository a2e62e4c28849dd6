"""A job that left its forecast's interval is planned anew by the next cycle."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from beds.stores import filled
from factories import NOW, make_collected, make_job, make_samples

from collectors.shared.collector import Window
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store
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
