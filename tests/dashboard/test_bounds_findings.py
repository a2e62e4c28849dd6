"""A cycle finds the bounds of an autoscaler that serve a service badly, and keeps the finding."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected, make_job, make_samples

from collectors.shared.collector import Window
from dashboard.apply.worker import guards
from dashboard.apply.worker.change_file import change_for
from dashboard.apply.worker.guards import require_within_limits, taken_gpus
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from dashboard.decisions.findings import findings_now
from data.base.errors import ChangeRefusedError
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.columns import SERVING, check_frame
from data.facts.jobs import SchedulerFacts
from data.records.actions import Action
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.apply import ApplySettings
from data.store import open_store

HOLDER = "horizontalpodautoscaler.autoscaling/ranker"
JOB, PODS, DAYS = "search/ranker", 4, 2
SETTINGS = replace(
    Settings(), planning=PlanningSettings(slot_minutes=60, horizon_slots=24, budget_seconds=1)
)


class Served:
    """A source of one service on four boards, that its autoscaler keeps at `least` at least."""

    name = "recorded"

    def __init__(self, least: str, always: int = PODS) -> None:
        extra = (("gpus_per_pod", "1"), ("min_replicas", least), ("max_replicas", "8"),
                 ("autoscaler", HOLDER))  # fmt: skip
        facts = SchedulerFacts(managed_by=("HorizontalPodAutoscaler",), extra=extra)
        since = NOW - timedelta(days=DAYS)
        self._always = always
        self._job = make_job(JOB, gpu_count=PODS, scheduler=facts, first_seen_at=since)

    def collect(self, window: Window) -> Collected:
        """Return all of it: boards that look busy all day, and requests by day alone."""
        samples = make_samples(gpus=PODS, minutes=DAYS * 1440, job_id=JOB, utilization_ratio=0.95)
        given = make_collected(samples, serving=served(self._always), jobs=(self._job,))
        return replace(given, report=replace(given.report, window_end=window.end))


def served(always: int) -> pd.DataFrame:
    """Requests of 4 s by slots of five minutes: two a second for each pod by day, few by night.

    By night `always` of the pods are there.
    """
    slots = DAYS * 288
    rates = np.where(np.arange(slots) % 288 < 144, 0.02, 2.0)
    starts = pd.to_datetime(
        [NOW - timedelta(minutes=5 * slot) for slot in range(slots, 0, -1)], utc=True
    ).as_unit("us")
    pods = [
        pd.DataFrame(
            {
                "slot_start": starts, "label_id": f"search/ranker-{pod}", "engine": "vllm",
                "model": "m", "address": str(pod), "running_requests": 4 * rates,
                "waiting_requests": 0.0, "finished_requests": 300 * rates,
                "request_seconds": 1200 * rates, "request_count": 300 * rates,
            }
        )
        for pod in range(PODS)
    ]  # fmt: skip
    pods = [rows if pod < always else rows[rates > 1] for pod, rows in enumerate(pods)]
    return check_frame(pd.concat(pods, ignore_index=True), SERVING)


def test_a_cycle_plans_the_replicas_of_yesterday_s_hours(store_url: str) -> None:
    """One of four by night, as soon as the orders of the next six hours allow."""
    planning = replace(SETTINGS.planning, max_changes_per_day=0)
    with open_store(store_url) as store:
        world = World(
            settings=replace(SETTINGS, planning=planning), store=store,
            collectors=(Served("1", always=1),),
            catalogue=load_gpu_catalogue(), carbon=load_carbon_table().get("DEU"),
        )  # fmt: skip
        outcome = run_cycle(world, now=NOW)
        (outlook,) = store.reader.serving_outlook()
        plan = store.reader.latest_plan()
        assert plan is not None
        (planned,) = plan.jobs
        held = [step.gpu_count for step in planned.steps]
    for start, count in zip(plan.slot_starts, held, strict=True):
        there = 1 if (start - NOW) % timedelta(days=1) < timedelta(hours=12) else PODS
        ordered = (outlook.required_at(start, timedelta(days=1)) or 0) * (
            start < outlook.slot_starts[-1]
        )
        assert count == min(PODS, max(there, ordered))  # no more boards were seen
    assert {1, PODS} == set(held)
    assert not [row for row in outcome.recommendations if row.job_id == JOB and row.change]


@pytest.mark.parametrize(("least", "told"), [("4", True), ("1", False)])
def test_a_cycle_tells_of_a_minimum_that_is_too_high(
    store_url: str, least: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the 4 kept where one is enough by night; not of what the autoscaler chose itself."""
    with open_store(store_url) as store:
        world = World(
            settings=SETTINGS, store=store, collectors=(Served(least),),
            catalogue=load_gpu_catalogue(), carbon=load_carbon_table().get("DEU"),
        )  # fmt: skip
        outcome = run_cycle(world, now=NOW)
        (outlook,) = store.reader.serving_outlook()
        assert outlook.bounds is not None
        assert (outlook.bounds.min_replicas, outlook.bounds.max_replicas) == (int(least), 8)
        assert outlook.bounds.known_hours == pytest.approx(DAYS * 24, abs=0.1)
        rows = [row for row in outcome.recommendations if row.action is Action.LOWER_MINIMUM]
        assert [row.job_id for row in rows] == [JOB] * told
        assert np.isclose(outlook.bounds.spare_replica_hours.central > 0, told)
        if told:
            assert rows[0].change == "minReplicas of 1 instead of 4"
            (found,) = findings_now(store.reader, now=NOW)
            assert found.finding.action == Action.LOWER_MINIMUM
            (kept,) = store.reader.recommendations(now=NOW)
            assert kept.recommendation.digest == rows[0].digest
            assert f"patch {HOLDER} " in change_for(kept.recommendation, ()).text
            reader, limits = store.reader, ApplySettings()
            require_within_limits(reader, rows[0], (), limits)
            assert taken_gpus(rows[0]) == 0
            monkeypatch.setattr(guards, "MIN_GPU_HOURS", 10_000.0)
            with pytest.raises(ChangeRefusedError, match="below 10000 GPU-h"):
                require_within_limits(reader, rows[0], (), limits)
