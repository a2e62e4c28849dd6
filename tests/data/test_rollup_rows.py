"""The rows of the roll-up, figure by figure: shared boards, slices, counters, and the hours."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_samples
from rollup_cases import START, allocations, facts, nameless, rows_of

from data.store import Store

SUMS = (
    "seconds", "board_seconds", "used_board_seconds", "known_board_seconds", "joules",
    "joules_by_slices", "joules_by_activity", "counter_joules", "power_joules",
    "power_joules_beside_counter", "samples", "sample_weight", "shared_samples", "jumps",
    "utilization_sum", "utilization_samples", "power_sum", "power_samples", "power_weight",
)  # fmt: skip
LARGEST = (
    "node", "gpu_index", "gpu_model", "mig_profile", "utilization_max", "memory_max_mib",
    "memory_total_mib", "last_at",
)  # fmt: skip
KEYS = ["gpu_uuid", "mig_instance", "job_id", "holder"]
WATTS, SECONDS = 400.0, 3600.0


def totals(rows: pd.DataFrame) -> pd.DataFrame:
    """Sums of five-minute rows by slice and holder."""
    return rows.groupby(["mig_instance", "job_id", "holder"])[list(SUMS)].sum()


def an_hour(store: Store) -> pd.DataFrame:
    """The rows of the hour from 11:00, in which all is known."""
    rows = rows_of(store, "five_minute")
    return rows[rows["slot_start"] >= NOW - timedelta(hours=1)]


def two_hours(**columns: object) -> pd.DataFrame:
    """Two hours of one board up to noon whose samples name nobody."""
    return make_samples(minutes=121, job_id="").assign(gpu_index="0", **columns)


def test_two_jobs_share_a_board_equally(store: Store) -> None:
    """Time, work, samples and energy by halves; together they are the board's."""
    both = [{"job_id": f"slurm:{number}", "gpu_uuid": "GPU-0000"} for number in (7, 8)]
    samples = two_hours(utilization_ratio=0.5)
    samples.loc[samples.index % 3 == 0, "power_watts"] = np.nan
    store.keep(facts(samples, allocations(*both)))
    found = totals(an_hour(store).query("slot_start < @NOW"))
    assert [name for _slice, name, _holder in found.index] == ["slurm:7", "slurm:8"]
    for row in found.itertuples():
        assert row.seconds == row.board_seconds == row.known_board_seconds == SECONDS / 2
        assert row.used_board_seconds == SECONDS / 4
        assert (row.samples, row.sample_weight, row.shared_samples) == (60, 30.0, 60)
        assert (row.power_samples, row.power_weight) == (40, 20.0)
        assert row.power_sum == pytest.approx(40 * WATTS / 2)
        assert (row.utilization_sum, row.utilization_samples) == (30.0, 60)


def test_slices_share_a_board_by_their_size_and_their_work(store: Store) -> None:
    """3 and 2 of 7 slices: idle power by slices, the rest by slices times activity."""
    cuts = (("1", "3g.40gb", 0.9), ("2", "2g.20gb", 0.1))
    samples = pd.concat(
        [
            two_hours(mig_instance=number, mig_profile=profile, utilization_ratio=used)
            for number, profile, used in cuts
        ]
    )
    store.keep(facts(samples))
    found = totals(an_hour(store).query("slot_start < @NOW")).reset_index("holder")
    whole = WATTS * SECONDS
    active = 3 * 0.9 + 2 * 0.1
    sizes = {"1": (3, 2.7 / active), "2": (2, 0.2 / active), "unallocated": (2, 0.0)}
    for number, (slices, activity) in sizes.items():
        row = found.loc[number, ""]
        assert row.seconds == SECONDS
        assert row.board_seconds == pytest.approx(SECONDS * slices / 7)
        assert row.joules_by_slices == pytest.approx(whole * slices / 7)
        assert row.joules_by_activity == pytest.approx(whole * activity)
        assert row.jumps == 0
    assert found["joules"].sum() == pytest.approx(whole)
    assert found.loc[("unallocated", ""), "samples"] == 0
    assert found.loc[("unallocated", ""), "sample_weight"] == 0


def test_a_counter_that_begins_anew_counts_from_zero(store: Store) -> None:
    """The step after a reset is what the counter shows; no reading before it is added."""
    samples = two_hours()
    counter = np.arange(len(samples)) * WATTS * 60.0
    counter[70:] -= counter[69]
    store.keep(facts(samples.assign(energy_joules=1e9 * (np.arange(len(samples)) < 70) + counter)))
    found = totals(rows_of(store, "five_minute"))
    assert found["joules"].sum() == pytest.approx(120 * 60 * WATTS, rel=1e-6)
    assert found["counter_joules"].sum() == pytest.approx(120 * 60 * WATTS, rel=1e-6)
    assert found["jumps"].sum() == 0


def test_hours_are_the_sums_of_their_slots(store: Store) -> None:
    """Each figure, of every holder and slice: sums, the largest, and the best signal."""
    whole = two_hours(power_watts=np.linspace(100, 600, 121), utilization_ratio=0.3)
    whole["memory_used_mib"] = np.linspace(1e3, 8e4, 121)
    cut = pd.concat(
        [
            two_hours(mig_instance=number, mig_profile=profile).assign(gpu_uuid="GPU-cut")
            for number, profile in (("1", "3g.40gb"), ("2", "2g.20gb"))
        ]
    )
    held = allocations(
        {"job_id": "slurm:7", "gpu_uuid": "GPU-0000"},
        {"job_id": "slurm:8", "gpu_uuid": "GPU-0000", "started_at": START + timedelta(hours=2)},
    )
    store.keep(facts(pd.concat([whole, cut]), held))
    slots, hours = rows_of(store, "five_minute"), rows_of(store, "hourly")
    slots["slot_start"] = slots["slot_start"].dt.floor("h")
    groups = slots.groupby(["slot_start", *KEYS])
    expected = groups[list(SUMS)].sum(min_count=1).join(groups[list(LARGEST)].max())
    found = hours.set_index(["slot_start", *KEYS])[[*SUMS, *LARGEST]]
    pd.testing.assert_frame_equal(
        found.sort_index().astype(expected.dtypes), expected.sort_index(), check_index_type=False
    )


def test_a_sample_belongs_to_the_slot_in_which_it_ends(store: Store) -> None:
    """An interval over the border is split by time; its sample counts once."""
    store.keep(facts(nameless().iloc[[0, 4, 8]]))
    found = rows_of(store, "five_minute").groupby("slot_start")[["samples", "seconds"]].sum()
    assert found["seconds"].tolist() == [300.0, 180.0]
    assert found["samples"].tolist() == [2, 1]
