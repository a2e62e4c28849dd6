"""Contradicted counters are kept by slot, and told of boards and of the jobs that held them."""

from datetime import timedelta

import pandas as pd
import pytest
from beds.stores import back_to_schema
from factories import NOW, make_collected, make_samples

from data.settings.all_settings import RetentionSettings
from data.store import Store, open_store

START = NOW - timedelta(hours=4)


def told(board: int, *, slots: int = 12, counter: str = "gr_engine_active") -> pd.DataFrame:
    """Slots of a board from START on in which a counter was contradicted."""
    starts = pd.date_range(START, periods=slots, freq="5min").as_unit("us")
    return pd.DataFrame(
        {
            "slot_start": starts,
            "gpu_uuid": f"GPU-{board:04d}",
            "mig_instance": "",
            "counter": counter,
            "reading": 0.03,
            "others": "gpu_util 98 %, power_watts 91 %",
        }
    )


def keep(store: Store, *frames: pd.DataFrame, name: str = "a") -> None:
    """Keep four hours of two boards, and what is told of them."""
    store.keep(
        make_collected(
            make_samples(gpus=2, minutes=250),
            contradictions=pd.concat(frames, ignore_index=True),
            batch_id=name,
        )
    )


def test_a_counter_is_told_of_its_board_and_its_job(store: Store) -> None:
    """With what it showed, and what the others did."""
    keep(store, told(0), told(1, counter="power_watts"))
    one, other = store.reader.contradicted_counters(end=NOW)
    assert (one.gpu_uuid, one.node, one.term, one.slots) == (
        "GPU-0000", "node-1", "GR_ENGINE_ACTIVE", 12,
    )  # fmt: skip
    assert (one.first_at, one.last_at) == (START, START + timedelta(minutes=55))
    assert one.evidence == "GPU_UTIL 98 %, POWER_USAGE 91 %"
    assert other.term == "POWER_USAGE"
    assert store.reader.contradicted_jobs(end=NOW) == {"search/ranker-0": (one, other)}


@pytest.mark.parametrize(("slots", "is_told"), [(1, False), (2, False), (3, True)])
def test_single_slots_are_not_told(store: Store, slots: int, is_told: bool) -> None:
    """A reading may fall on the moment in which work begins."""
    keep(store, told(0, slots=slots))
    assert bool(store.reader.contradicted_counters(end=NOW)) is is_told
    assert bool(store.reader.contradicted_jobs(end=NOW)) is is_told


def test_a_slot_told_again_counts_once(store: Store) -> None:
    """Repeats are harmless, and a day later nothing is told any more."""
    keep(store, told(0), told(0))
    keep(store, told(0), name="b")
    (one,) = store.reader.contradicted_counters(end=NOW)
    assert one.slots == 12
    assert store.reader.contradicted_counters(end=NOW + timedelta(hours=25)) == ()


def test_it_goes_with_its_retention(store: Store) -> None:
    """And does not come back."""
    keep(store, told(0))
    late = NOW + timedelta(days=400)
    assert store.forget(RetentionSettings(), late)["contradictions"] == 12
    keep(store, told(0), name="b")
    assert store.reader.contradicted_counters(end=NOW) == ()


def test_a_store_of_an_earlier_version_opens(tmp_path: object) -> None:
    """Its readings were not held against each other: nothing is told of them."""
    url = f"duckdb:///{tmp_path}/old.db"
    with open_store(url) as store:
        store.keep(make_collected(make_samples()))
        back_to_schema(store, 20)
    with open_store(url) as store:
        assert store.reader.contradicted_counters(end=NOW) == ()
        keep(store, told(0))
        assert len(store.reader.contradicted_counters(end=NOW)) == 1
