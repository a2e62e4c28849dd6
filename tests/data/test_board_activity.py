"""What kept devices at work is kept by slot, and read for the job that held them alone."""

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
from factories import NOW, make_collected, make_plan, make_samples

from data.records.recommendations import Range
from data.records.slow_work import SlowCause, SlowWork
from data.settings.all_settings import RetentionSettings
from data.store import Store

JOB = "search/ranker-0"
START = NOW - timedelta(hours=1)
FOUND = SlowWork(
    job_id=JOB, cause=SlowCause.STARVED, boards=2, known_slots=12, votes=11, firm_votes=9,
    confidence="medium", doubt="CPU work looks the same", signals=(("engine", 0.4),),
    lost_ratio=Range(low=0.1, central=0.2, high=0.3, unit="share"), remedy="more loaders",
)  # fmt: skip


def told(board: int, *, slots: int = 12, **values: Any) -> pd.DataFrame:
    """Activity of a board in the slots from START on."""
    starts = pd.date_range(START, periods=slots, freq="5min").as_unit("us")
    plain = {"engine_active": 0.5, "sm_active": 0.4, "power_ratio": 0.5}
    columns = {"slot_start": starts, "gpu_uuid": f"GPU-{board:04d}", "mig_instance": ""}
    return pd.DataFrame(columns | plain | values)


def keep(store: Store, *frames: pd.DataFrame, name: str = "a", **samples: Any) -> None:
    """Keep samples of two boards and what is told of them."""
    store.keep(
        make_collected(
            make_samples(**({"gpus": 2, "minutes": 70} | samples)),
            activity=pd.concat(frames, ignore_index=True), batch_id=name,
        )
    )  # fmt: skip


def read(store: Store) -> pd.DataFrame:
    """What is read of the hour."""
    return store.reader.job_activity(start=START, end=NOW)


def test_a_job_is_read_as_the_mean_of_its_boards(store: Store) -> None:
    """With how far the boards are apart; what one of them does not tell is unknown."""
    keep(store, told(0, sm_active=0.8, tensor_active=0.1), told(1, sm_active=0.4))
    rows = read(store)
    assert set(rows["job_id"]) == {JOB}
    assert list(rows["boards"]) == [2] * 12
    assert np.allclose(rows["sm_active"], 0.6)
    assert np.allclose(rows["behind"], 0.25)
    assert np.allclose(rows["spread"], 0.5)
    assert rows[["tensor_active", "dram_active"]].isna().all().all()


def test_without_sm_activity_power_tells_how_far_boards_are_apart(store: Store) -> None:
    """Of boards that do nothing nobody can say."""
    keep(store, told(0, sm_active=np.nan), told(1, sm_active=np.nan, power_ratio=0.25))
    assert np.allclose(read(store)["spread"], 0.5)
    keep(store, told(0, sm_active=0.0), told(1, sm_active=0.0), name="b")
    assert read(store)["spread"].isna().all()


def test_a_slot_told_again_is_the_latter(store: Store) -> None:
    """Repeats are harmless."""
    keep(store, told(0), told(0, engine_active=0.7))
    keep(store, told(0, engine_active=0.9), name="b")
    assert np.allclose(read(store)["engine_active"], 0.9)


def test_boards_that_are_shared_or_change_hands_tell_nothing(store: Store) -> None:
    """What kept them at work is nobody's alone."""
    samples = make_samples(gpus=2, minutes=70)
    other = samples[samples["gpu_uuid"] == "GPU-0001"].assign(job_id="search/other")
    halfway = (samples["gpu_uuid"] == "GPU-0000") & (
        samples["sampled_at"] >= START + timedelta(minutes=18)
    )
    samples.loc[halfway, "job_id"] = "search/next"
    frames = pd.concat([told(0), told(1)], ignore_index=True)
    both = pd.concat([samples, other], ignore_index=True)
    store.keep(make_collected(both, activity=frames))
    rows = read(store)
    assert "search/other" not in set(rows["job_id"])
    slots = rows.groupby("job_id")["slot_start"].agg(["count", "max"])
    assert slots.loc[JOB, "count"] == 3
    assert slots.loc["search/next", "count"] == 8


def test_it_goes_with_its_retention(store: Store) -> None:
    """And does not come back."""
    keep(store, told(0))
    late = NOW + timedelta(days=400)
    assert store.forget(RetentionSettings(), late)["board_activity"] == 12
    keep(store, told(0), name="b")
    assert read(store).empty


def keep_cycle(store: Store, number: int, *found: SlowWork) -> None:
    """Keep a cycle that found this."""
    at = NOW + timedelta(days=number)
    store.keep_cycle(
        cycle_id=f"c{number}", started_at=at, finished_at=at, forecasts=(),
        slow_work=found, plan=make_plan(plan_id=f"{number}" * 12), recommendations=(),
    )  # fmt: skip


def test_what_a_cycle_found_is_read_back_whole(store: Store) -> None:
    """The latest cycle's alone; it goes with the forecasts."""
    assert store.reader.slow_work() == ()
    keep_cycle(store, 1, FOUND)
    assert store.reader.slow_work() == (FOUND,)
    keep_cycle(store, 2)
    assert store.reader.slow_work() == ()
    assert store.forget(RetentionSettings(), NOW + timedelta(days=13))["slow_work"] == 1
