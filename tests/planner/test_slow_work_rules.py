"""Why a job is slow: which signals show which cause, and when nothing can be said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import examples
from factories import make_job
from hypothesis import given, settings
from hypothesis import strategies as st

from data.facts.columns import ACTIVITY
from data.facts.jobs import Job, WorkloadKind
from data.records.slow_work import SlowCause, SlowWork
from planner.slow_work.rules import MIN_SLOTS, RULES, shown, signals_of, slow_work

START = pd.Timestamp("2026-01-05T12:00Z")
SIGNALS = [
    name for name in ACTIVITY.names if name not in ("slot_start", "gpu_uuid", "mig_instance")
]
BUSY: dict[str, Any] = {
    "engine_active": 0.97, "sm_active": 0.85, "tensor_active": 0.4, "dram_active": 0.5,
    "fp32_active": 0.05,
    "pcie_bytes_per_second": 1e9, "nvlink_bytes_per_second": 1e10, "throttled_ratio": 0.0,
    "power_ratio": 0.8, "boards": 4, "behind": 0.02, "spread": 0.05,
}  # fmt: skip
SHOWS: dict[SlowCause, dict[str, Any]] = {
    SlowCause.BUSY: {},
    SlowCause.STARVED: {"engine_active": 0.4, "sm_active": 0.35, "tensor_active": 0.15},
    SlowCause.SMALL_BATCH: {"sm_active": 0.3, "tensor_active": 0.1},
    SlowCause.WAITING: {"spread": 0.6, "behind": 0.4},
    SlowCause.COMMUNICATION: {"nvlink_bytes_per_second": 3e11, "tensor_active": 0.1},
    SlowCause.NO_TENSOR: {"tensor_active": 0.03, "fp32_active": 0.5},
    SlowCause.THROTTLED: {"throttled_ratio": 0.5},
}
LOST = {SlowCause.STARVED: 0.6, SlowCause.SMALL_BATCH: 1.0, SlowCause.WAITING: 0.4}
"""The most that can be won back, of those that tell it."""


def measured() -> list[dict[str, Any]]:
    """Programs measured on an H200, as `benchmarks.measure_causes` ran them."""
    path = Path(__file__).parents[2] / "benchmarks/measured/slow_programs_h200.json"
    programs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return programs


def trains(**changes: Any) -> Job:
    """A training job on four boards."""
    return make_job("a", **({"kind": WorkloadKind.TRAINING, "gpu_count": 4} | changes))


def rows(slots: int, **changes: Any) -> pd.DataFrame:
    """Slots of a busy job, as `job_activity` gives them, but for the changes."""
    starts = [START + pd.Timedelta(minutes=5 * slot) for slot in range(slots)]
    well = dict.fromkeys(SIGNALS, np.nan)
    frame = pd.DataFrame({"job_id": "a", "slot_start": starts} | well | BUSY | changes)
    return frame.astype(dict.fromkeys((*SIGNALS, "behind", "spread"), "float64"))


def said(frame: pd.DataFrame, job: Job | None = None) -> SlowWork:
    """What the rule says of the job of these slots."""
    (found,) = slow_work(frame, {"a": trains() if job is None else job})
    return found


@pytest.mark.parametrize("cause", SHOWS)
def test_each_cause_shows(cause: SlowCause) -> None:
    """On a day like any other, with what the rule takes from its boards at most."""
    found = said(rows(24, **SHOWS[cause]))
    assert (found.cause, found.known_slots, found.votes) == (cause, 24, 24)
    assert found.confidence in ("medium", "strong")
    assert str(cause) in found.describe()
    if cause in LOST:
        assert found.lost_ratio is not None
        assert found.lost_ratio.high == pytest.approx(LOST[cause])
        assert found.lost_ratio.low <= found.lost_ratio.central <= LOST[cause]
    elif cause is SlowCause.NO_TENSOR:
        assert found.lost_ratio is not None
        assert 0 == found.lost_ratio.low < found.lost_ratio.high < 1
    else:
        assert found.lost_ratio is None


@pytest.mark.parametrize("cause", SHOWS)
def test_too_few_readings_show_nothing(cause: SlowCause) -> None:
    """An hour of slots is needed, and slots in which the engine is unknown are none."""
    assert said(rows(MIN_SLOTS - 1, **SHOWS[cause])).cause is SlowCause.UNKNOWN
    assert said(rows(MIN_SLOTS, **SHOWS[cause])).cause is cause
    frame = rows(30, **SHOWS[cause])
    frame.loc[MIN_SLOTS - 1 :, "engine_active"] = np.nan
    found = said(frame)
    assert (found.cause, found.known_slots) == (SlowCause.UNKNOWN, MIN_SLOTS - 1)
    assert f"{MIN_SLOTS - 1} of the {MIN_SLOTS} slots" in found.doubt


def test_a_job_with_unknown_signals_is_unknown() -> None:
    """High use alone tells nothing, nor is it busy: its tensor cores may be unused."""
    found = said(rows(24, sm_active=np.nan, tensor_active=np.nan))
    assert found.cause is SlowCause.UNKNOWN
    assert found.doubt == "no source tells SM activity, tensor activity"
    assert said(rows(24, tensor_active=np.nan)).cause is SlowCause.UNKNOWN
    assert said(rows(24, spread=np.nan)).cause is SlowCause.UNKNOWN
    assert slow_work(rows(0), {"a": trains()}) == ()


def test_a_job_of_which_a_board_does_not_tell_is_unknown() -> None:
    """It may wait for that one, or share it with another job."""
    found = said(rows(24, **SHOWS[SlowCause.NO_TENSOR] | {"boards": 3}))
    assert (found.cause, found.known_slots) == (SlowCause.UNKNOWN, 0)
    assert "on all its 4 GPUs" in found.doubt


def test_what_does_no_work_is_not_slow() -> None:
    """Idle GPUs are another finding."""
    found = said(rows(24, engine_active=0.01, sm_active=0.0, tensor_active=0.0))
    assert found.cause is SlowCause.UNKNOWN
    assert "did nothing in 24 of 24" in found.doubt


def test_evaluation_and_checkpoints_do_not_hide_the_cause() -> None:
    """A third of the slots may show something else; half of them leave no cause."""
    frame = rows(30, **SHOWS[SlowCause.NO_TENSOR])
    frame.loc[:9, ["engine_active", "sm_active", "tensor_active"]] = 0.0
    found = said(frame)
    assert (found.cause, found.votes, found.confidence) == (SlowCause.NO_TENSOR, 20, "weak")
    frame.loc[:15, ["engine_active", "sm_active", "tensor_active"]] = 0.0
    assert said(frame).cause is SlowCause.UNKNOWN


def test_services_wait_for_requests() -> None:
    """They are not starved; a job of unknown kind may be one, which is said and makes it weak."""
    frame = rows(24, **SHOWS[SlowCause.STARVED])
    assert said(frame, trains(kind=WorkloadKind.INFERENCE)).cause is SlowCause.UNKNOWN
    found = said(frame, trains(kind=WorkloadKind.UNKNOWN))
    assert (found.cause, found.confidence) == (SlowCause.STARVED, "weak")
    assert "kind is unknown" in found.doubt


def test_gpu_utilization_alone_is_weak() -> None:
    """Too small a batch looks the same there."""
    found = said(rows(24, engine_active=0.4, sm_active=np.nan, tensor_active=np.nan))
    assert (found.cause, found.confidence) == (SlowCause.STARVED, "weak")


def test_one_board_waits_for_nobody() -> None:
    """Whatever its spread and its traffic."""
    for cause in (SlowCause.WAITING, SlowCause.COMMUNICATION):
        found = said(rows(24, **SHOWS[cause] | {"boards": 1}), trains(gpu_count=1))
        assert found.cause is SlowCause.BUSY


def test_a_cause_near_its_threshold_is_less_sure() -> None:
    """With each threshold 10 % stricter it would not show."""
    far = said(rows(24, **SHOWS[SlowCause.STARVED]))
    near = said(rows(24, **SHOWS[SlowCause.STARVED] | {"engine_active": 0.62}))
    assert (far.confidence, far.firm_votes) == ("medium", 24)
    assert (near.cause, near.confidence, near.firm_votes) == (SlowCause.STARVED, "weak", 0)


RATIO = st.one_of(st.just(float("nan")), st.floats(0, 1))
TRAFFIC = st.one_of(st.just(float("nan")), st.floats(0, 1e12))
SLOT = st.fixed_dictionaries(
    {name: TRAFFIC if "bytes" in name else RATIO for name in SIGNALS}
    | {"boards": st.integers(1, 8), "behind": RATIO, "spread": RATIO}
)


@settings(max_examples=examples(60), deadline=None)
@given(slots=st.lists(SLOT, min_size=1, max_size=30), order=st.randoms())
def test_whatever_is_told_one_cause_is_said_with_its_doubt(slots: list[Any], order: Any) -> None:
    """In whatever order; never slow on too few slots, and nothing beyond what was read."""
    frame = pd.DataFrame(slots).assign(job_id="a", slot_start=START)
    job = trains(gpu_count=1)
    found = said(frame, job)
    assert found.doubt
    assert found.firm_votes <= found.votes <= found.known_slots <= len(slots)
    if found.cause is SlowCause.UNKNOWN:
        assert (found.confidence, found.lost_ratio, found.signals) == ("", None, ())
    else:
        assert found.known_slots >= MIN_SLOTS
        assert 5 * found.votes >= 3 * found.known_slots
        assert found.confidence in ("weak", "medium", "strong")
        assert all(np.isfinite(value) for _name, value in found.signals)
    if found.lost_ratio is not None:
        assert 0 <= found.lost_ratio.low <= found.lost_ratio.high <= 1
    mixed = frame.sample(frac=1, random_state=order.randint(0, 999))
    again = said(mixed, job)
    assert (again.cause, again.votes, again.firm_votes) == (
        found.cause, found.votes, found.firm_votes,
    )  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(slots=st.lists(SLOT, min_size=1, max_size=10))
def test_a_slot_without_its_engine_shows_nothing(slots: list[Any]) -> None:
    """And every row of the table that holds is one of the causes."""
    frame = pd.DataFrame(slots)
    found = shown(signals_of(frame.assign(engine_active=np.nan)))
    assert (found == -1).all()
    assert (shown(signals_of(frame)) < len(RULES)).all()


def test_work_that_is_small_is_not_starved() -> None:
    """Kernels that fill few SMs are short of work, however late they come."""
    late = {"engine_active": 0.2, "sm_active": 0.06, "tensor_active": 0.004}
    assert said(rows(24, boards=1, **late), trains(gpu_count=1)).cause is SlowCause.SMALL_BATCH
    full = late | {"sm_active": 0.18}
    assert said(rows(24, boards=1, **full), trains(gpu_count=1)).cause is SlowCause.STARVED


def test_work_without_matrix_products_is_no_finding() -> None:
    """A sort keeps its SMs busy without a tensor core, and without single precision."""
    sort = {"sm_active": 0.99, "tensor_active": 0.001, "dram_active": 0.5}
    assert said(rows(24, fp32_active=0.0, **sort)).cause is SlowCause.UNKNOWN
    untold = said(rows(24, fp32_active=np.nan, **sort))
    assert (untold.cause, untold.confidence) == (SlowCause.NO_TENSOR, "weak")
    streams = said(rows(24, fp32_active=0.0, **(sort | {"dram_active": 0.9})))
    assert streams.cause is SlowCause.BUSY


@pytest.mark.parametrize("program", measured(), ids=lambda program: str(program["name"]))
def test_programs_of_known_cause_show_it(program: dict[str, Any]) -> None:
    """As measured on an H200; nothing is a finding that has none of these causes.

    Two are at the edge of busy, and a recurrent network at the edge of starved.
    """
    found = said(
        rows(24, boards=1, **{name: program.get(name) for name in SIGNALS}), trains(gpu_count=1)
    )
    cause = SlowCause(program["cause"])
    if cause is SlowCause.UNKNOWN:
        finding = found.cause.is_slow and found.confidence != "weak"
        assert not finding or program["name"] == "gru, batch 512"
    elif cause is SlowCause.BUSY:
        assert found.cause in (SlowCause.BUSY, SlowCause.UNKNOWN)
    else:
        assert found.cause is cause
