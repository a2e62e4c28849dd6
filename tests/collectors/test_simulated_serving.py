"""The services of the simulated fleet: one past, no request lost, and each kind as it is meant."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from collectors.simulated.fleet import SimulatedFleet
from collectors.simulated.holdings import Holding
from collectors.simulated.serving import serving_history
from data.base.units import SLOT_SECONDS

END = datetime(2026, 1, 15, tzinfo=UTC)  # a Thursday
KEY = ["label_id", "slot_start"]


def told(fleet: SimulatedFleet, hours: int, end: datetime = END) -> pd.DataFrame:
    """What the engines told in the hours up to `end`."""
    start = end - timedelta(hours=hours)
    found = serving_history(fleet.services, fleet.settlement, start, end)
    return found.sort_values(KEY).reset_index(drop=True)


@pytest.fixture(scope="module")
def fleet() -> SimulatedFleet:
    """That of the demo."""
    return SimulatedFleet(seed=7, nodes=8)


def test_any_window_tells_the_same_of_a_slot(fleet: SimulatedFleet) -> None:
    """A queue goes on over the ends of windows; each slot is told in one of them."""
    long, short = told(fleet, 72), told(SimulatedFleet(seed=7, nodes=8), 5)
    tail = long[long["slot_start"] >= pd.Timestamp(END - timedelta(hours=5))]
    pd.testing.assert_frame_equal(tail.reset_index(drop=True), short)
    parts = [told(fleet, 7, END - timedelta(hours=7 * part)) for part in range(3)]
    joined = pd.concat(parts).sort_values(KEY).reset_index(drop=True)
    pd.testing.assert_frame_equal(joined, told(fleet, 21))
    assert not joined.duplicated(KEY).any()


def test_each_replica_is_of_a_job_that_holds_its_device(fleet: SimulatedFleet) -> None:
    """The pod's name without its number is the job's id."""
    jobs = {job.job_id: job.gpu_count for job in fleet.jobs(END - timedelta(hours=1), END)}
    replicas = told(fleet, 1)["label_id"].drop_duplicates()
    counts = replicas.str.rpartition("-")[0].value_counts()
    assert {name: jobs[name] for name in counts.index} == counts.to_dict()


def test_a_drowning_service_lets_requests_wait_and_a_daily_one_does_not(
    fleet: SimulatedFleet,
) -> None:
    """A launch comes every third day; an engine that tells little leaves out requests at work."""
    rows = told(fleet, 72)
    of = {
        service.kind: rows[rows["label_id"].str.startswith(f"{service.tenant.job_id(0)}-")]
        for service in fleet.services
    }
    waited = of["drowning"]["queue_wait_seconds"] / of["drowning"]["queue_wait_count"]
    assert waited.max() > 30
    assert of["daily"]["waiting_requests"].max() == 0
    assert of["mute"]["running_requests"].isna().all()
    assert of["mute"]["finished_requests"].notna().all()
    launched = of["launched"].groupby(of["launched"]["slot_start"].dt.date)["finished_requests"]
    by_day = launched.sum().nlargest(2).to_list()
    assert by_day[0] > 1.5 * by_day[1]
    assert (rows["kv_cache_ratio"].dropna().between(0, 1)).all()


def test_a_replica_that_is_taken_away_tells_no_more(fleet: SimulatedFleet) -> None:
    """And the one that stays works for both."""
    service = next(entry for entry in fleet.services if len(entry.tenant.devices) == 2)
    kept = service.tenant.devices[0].key
    since = int((END - timedelta(hours=12)).timestamp())
    smaller = SimulatedFleet(
        seed=7, nodes=8,
        changes=(Holding(tenant=service.tenant.number, since=since, places=(kept,)),),
    )  # fmt: skip
    name = f"{service.tenant.job_id(0)}-"

    def by_slot(frame: pd.DataFrame) -> pd.DataFrame:
        own = frame[frame["label_id"].str.startswith(name)]
        sums = own.groupby("slot_start")["finished_requests"].agg(["size", "sum"])
        return sums[sums.index >= pd.Timestamp(END - timedelta(hours=12))]

    before, after = by_slot(told(fleet, 24)), by_slot(told(smaller, 24))
    assert set(before["size"]) == {2}
    assert set(after["size"]) == {1}
    calm = before.index >= pd.Timestamp(END - timedelta(hours=3))  # no burst, and no queue left
    assert before["sum"][calm].max() < 16 / service.request_seconds * SLOT_SECONDS
    assert np.allclose(before["sum"][calm], after["sum"][calm], atol=2)
