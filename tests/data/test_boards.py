"""Boards as the page Fleet asks for them: shares of the board, also when it is cut into slices."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pandas as pd
import pytest
from factories import NOW, make_collected, make_job, make_samples

from data.store import Store, open_store

WINDOW = {"start": NOW - timedelta(hours=1), "end": NOW}


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A busy board, a free one, and one cut in two of which one half works."""
    whole = make_samples(gpus=2, minutes=61)
    free = whole["gpu_uuid"] == "GPU-0001"
    whole.loc[free, "job_id"] = ""
    whole.loc[free, "utilization_ratio"] = 0.0
    sliced = []
    for instance, used in (("1", 1.0), ("2", 0.0)):
        sliced.append(
            make_samples(
                minutes=61,
                job_id="search/slice",
                gpu_uuid="GPU-cut",
                mig_instance=instance,
                mig_profile="3g.40gb",
                utilization_ratio=used,
                memory_used_mib=10_000.0,
                memory_total_mib=40_448.0,
            )
        )
    samples = pd.concat([whole, *sliced], ignore_index=True)
    with open_store(store_url) as opened:
        jobs = (make_job(), make_job("search/slice", gpu_count=2, mig_profile="3g.40gb"))
        opened.keep(make_collected(samples, jobs))
        yield opened


def test_a_board_tells_who_holds_it_and_how_much_works(store: Store) -> None:
    """Half used, wholly held; the free one is held by nobody; power is the board's."""
    boards = store.reader.boards(**WINDOW).set_index("gpu_uuid")
    busy, free = boards.loc["GPU-0000"], boards.loc["GPU-0001"]
    assert (busy["allocated_ratio"], busy["used_ratio"]) == pytest.approx((1.0, 0.5))
    assert (busy["jobs"], free["jobs"], free["allocated_ratio"]) == ("search/ranker-0", "", 0.0)
    assert busy["power_watts"] == pytest.approx(400)


def test_slices_are_shares_of_their_board(store: Store) -> None:
    """One of two equal slices works: half of what is held; memory adds up, power does not."""
    cut = store.reader.boards(**WINDOW).set_index("gpu_uuid").loc["GPU-cut"]
    assert cut["mig_profiles"] == "3g.40gb, 3g.40gb"
    assert cut["used_ratio"] == pytest.approx(0.5)
    assert cut["memory_used_mib"] == pytest.approx(20_000)
    assert cut["power_watts"] == pytest.approx(400, rel=0.03)


def test_one_board_over_time_by_slice(store: Store) -> None:
    """A row per slot and slice; another board's samples are not in it."""
    past = store.reader.board_history("GPU-cut", **WINDOW, slot_seconds=900)
    assert set(past["mig_instance"]) == {"1", "2"}
    by_slice = past.groupby("mig_instance")["utilization_ratio"].mean()
    assert by_slice.to_dict() == pytest.approx({"1": 1.0, "2": 0.0})
    assert set(past["jobs"]) == {"search/slice"}
    assert past.groupby("slot_start")["power_watts"].sum().mean() == pytest.approx(400, rel=0.03)
    assert store.reader.board_history("GPU-none", **WINDOW, slot_seconds=900).empty


def test_silent_boards_are_those_of_the_day_that_the_last_hour_lacks(store: Store) -> None:
    """To the slot: a reading a minute before the hour's first slot is before it."""
    last = [NOW - timedelta(minutes=ago) for ago in (3, 54, 55, 56, 59, 60, 61, 65, 90, 300)]
    for number, end in enumerate(last):
        late = make_samples(minutes=5, end=end, gpu_uuid=f"GPU-silent-{number}")
        store.keep(replace(make_collected(late, ()), batch_id=f"silent-{number}"))
    for now in (NOW, NOW + timedelta(minutes=7), NOW + timedelta(minutes=42)):
        day = store.reader.boards(start=now - timedelta(days=1), end=now)
        hour = store.reader.boards(start=now - timedelta(hours=1), end=now)
        silent = store.reader.silent_boards(
            start=now - timedelta(days=1), end=now, since=now - timedelta(hours=1)
        )
        expected = day[~day["gpu_uuid"].isin(hour["gpu_uuid"])].reset_index(drop=True)
        pd.testing.assert_frame_equal(silent, expected[list(silent.columns)])
        assert 0 < len(silent) < len(day)
