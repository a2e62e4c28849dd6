"""A job whose kind nobody tells, and on whose pod an inference engine is read, is a service."""

from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected, make_job, make_samples

from collectors.shared.collector import Window
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.columns import ALLOCATIONS, SERVING, check_frame, empty_frame
from data.facts.jobs import Platform, WorkloadKind
from data.records.actions import Action
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store, open_store

POD, SLURM = "search/chat-7d9f8c6b5-x2x4z", "slurm:7"
DAYS = 8
SETTINGS = replace(
    Settings(), planning=PlanningSettings(slot_minutes=60, horizon_slots=24, budget_seconds=1)
)


@dataclass(frozen=True)
class Boards:
    """A board read by DCGM that has been idle for 60 hours, and its engine where one is read."""

    job_id: str = POD
    served: bool = True
    name: str = "recorded"

    def collect(self, window: Window) -> Collected:
        """Return all of it."""
        minutes = DAYS * 1440
        busy = np.where(np.arange(minutes) < minutes - 60 * 60, 0.8, 0.0)
        platform = Platform.SLURM if self.job_id == SLURM else Platform.KUBERNETES
        job = make_job(
            self.job_id, kind=WorkloadKind.UNKNOWN, platform=platform,
            first_seen_at=NOW - timedelta(days=DAYS),
        )  # fmt: skip
        given = make_collected(
            make_samples(minutes=minutes, job_id=self.job_id, utilization_ratio=busy),
            serving=silent(self.job_id) if self.served else empty_frame(SERVING), jobs=(job,),
        )  # fmt: skip
        return replace(given, report=replace(given.report, window_end=window.end))


def silent(label: str) -> pd.DataFrame:
    """Return two hours of an engine that had no request."""
    starts = pd.date_range(NOW - timedelta(hours=2), NOW, freq="5min", inclusive="left")
    rows = {"slot_start": starts.as_unit("us"), "label_id": label, "engine": "vllm"}
    return check_frame(pd.DataFrame(rows).assign(running_requests=0.0), SERVING)


def held_by(job_id: str, label: str) -> pd.DataFrame:
    """Return that a pod of a job has held a board for an hour."""
    since = pd.Timestamp(NOW - timedelta(hours=1)).as_unit("us")
    rows = {"job_id": [job_id], "label_id": label, "node": "node-1", "gpu_count": 1.0}
    seen = {"started_at": since, "seen_at": pd.Timestamp(NOW).as_unit("us"), "source": "test"}
    return check_frame(pd.DataFrame(rows | seen), ALLOCATIONS)


@pytest.mark.parametrize(
    ("boards", "kind", "reclaimed"),
    [
        (Boards(), WorkloadKind.INFERENCE, False),
        (Boards(served=False), WorkloadKind.UNKNOWN, True),
        (Boards(job_id=SLURM), WorkloadKind.UNKNOWN, True),
    ],
    ids=("engine read", "no engine", "Slurm"),
)
def test_a_weekend_without_requests_is_no_reason_to_stop_a_service(
    store_url: str, boards: Boards, kind: WorkloadKind, reclaimed: bool
) -> None:
    """Though no scheduler tells that the pod serves; 60 idle hours of another job are one."""
    with open_store(store_url) as store:
        world = World(
            settings=SETTINGS, store=store, collectors=(boards,),
            catalogue=load_gpu_catalogue(), carbon=load_carbon_table().get("DEU"),
        )  # fmt: skip
        outcome = run_cycle(world, now=NOW)
        actions = [entry.action for entry in outcome.recommendations]
        assert (Action.RECLAIM in actions) == reclaimed
        assert {job.kind for job in store.reader.jobs()} == {kind}


def test_a_workload_of_a_kind_that_nobody_knows_serves_where_its_pod_does(store: Store) -> None:
    """And stays a service where later reports of it come without its engine; training does not."""
    ids = {"search/chatbot/chat": WorkloadKind.UNKNOWN, "vision/job/grpo": WorkloadKind.TRAINING}
    jobs = tuple(make_job(name, kind=kind) for name, kind in ids.items())
    held = pd.concat(
        [held_by(job_id, f"{job_id.partition('/')[0]}/pod-0") for job_id in ids], ignore_index=True
    )
    engines = pd.concat([silent("search/pod-0"), silent("vision/pod-0")], ignore_index=True)
    store.keep(make_collected(jobs=jobs, allocations=held, serving=engines))
    later = tuple(replace(job, last_seen_at=NOW + timedelta(hours=1)) for job in jobs)
    store.keep(make_collected(jobs=later, batch_id="later"))
    kinds = {job.job_id: job.kind for job in store.reader.jobs()}
    assert kinds == ids | {"search/chatbot/chat": WorkloadKind.INFERENCE}
