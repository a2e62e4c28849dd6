"""The memory watch says what will run out before it does, and where room has become free."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.forecasts import DemandForecast, QuantilePath, Quantity, WindowPeak
from data.records.memory import MemoryFinding, MemoryOutlook, MemoryRemedy
from planner.memory.estimate.training_plans import GpuType
from planner.memory.models.model_sizes import known_model
from planner.memory.step.framework_traits import framework_traits
from planner.memory.step.training_job import Parallelism, Recompute, TrainingJob
from planner.memory.watch import watch
from planner.memory.watch.framework_flags import framework_flags
from planner.memory.watch.growth import growth_towards
from planner.memory.watch.watch import WatchedJob, exceedance_of, watch_memory

NOW = datetime(2026, 1, 5, tzinfo=UTC)
LIMIT = 81_559.0
SLOTS = 24
TYPES = tuple(GpuType.of(model) for model in load_gpu_catalogue())


def make_path(low: Any, middle: Any, high: Any, **outer: Any) -> QuantilePath:
    """A memory path [slots] from three rows or constants, MiB."""
    rows = [
        tuple(np.broadcast_to(np.asarray(entry, float), SLOTS)) for entry in (low, middle, high)
    ]
    return QuantilePath(
        quantity=Quantity.MEMORY,
        model="mix",
        q10=rows[0],
        q50=rows[1],
        q90=rows[2],
        backtest=None,
        **outer,
    )


def make_job(path: QuantilePath | None, used: Any, **more: Any) -> WatchedJob:
    """A job on one H100 with this path and past."""
    peaks = more.pop("peaks", ())
    forecast = DemandForecast(
        job_id="ml/job/train",
        slot_starts=tuple(NOW + timedelta(minutes=15 * slot) for slot in range(SLOTS)),
        paths=() if path is None else (path,),
        missing=(),
        samples=100,
        history_slots=96,
        known_slots=96,
        peaks=peaks,
    )
    return WatchedJob(
        job_id="ml/job/train",
        gpu_model="H100-SXM5-80GB",
        limit_mib=LIMIT,
        used_mib=np.asarray(used, float),
        forecast=forecast,
        **({"gpu_types": TYPES} | more),
    )


def climbing() -> QuantilePath:
    """A path that climbs from 60 to 90 GiB, 3 GiB either way."""
    middle = np.linspace(60, 90, SLOTS) * 1024
    return make_path(middle - 3072, middle, middle + 3072)


def only(job: WatchedJob) -> MemoryFinding:
    """The one finding of a job."""
    (found,) = watch_memory([job])
    return found


@given(st.floats(60_000, 80_000))
def test_what_was_told_is_told_until_its_chance_is_small(middle: float) -> None:
    """From one chance on it is told first, and below a lower one no more."""
    job = make_job(make_path(middle - 9_000, middle, middle + 9_000), np.full(96, middle))
    new = {finding.job_id for finding in watch_memory([job]) if finding.probability is not None}
    again = [
        finding
        for finding in watch_memory([job], reported={job.job_id})
        if finding.probability is not None
    ]
    assert new <= {finding.job_id for finding in again}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "REPORTED_FROM", 0.0)
        every = watch_memory([job])
    chance = every[0].probability if every else None
    assert bool(new) == (chance is not None and chance >= watch.REPORTED_FROM)
    assert bool(again) == (chance is not None and chance >= watch.OVER_BELOW)


def test_a_climb_beyond_the_board_is_told_with_its_time() -> None:
    """Memory whose median passes the board is sure to run out, at the slot where it does."""
    found = only(make_job(climbing(), np.linspace(40, 60, 48) * 1024))
    usable = 0.985 * LIMIT
    first = next(slot for slot, entry in enumerate(climbing().q50) if entry >= usable)
    assert found.outlook is MemoryOutlook.RUNS_OUT
    assert found.probability is not None
    assert found.probability >= 0.9
    assert found.at == NOW + timedelta(minutes=15 * first)
    assert "with a chance of at least 90 %" in found.why


def lately(gib_per_hour: float, *, now_gib: float = 70.0, slots: int = 12) -> Any:
    """Memory of the newest five-minute slots that grew steadily, MiB."""
    return (now_gib + gib_per_hour * np.arange(1 - slots, 1) / 12) * 1024


@pytest.mark.parametrize(
    ("used", "told"),
    [
        (lately(12.0), True),  # 8.5 GiB are left, 11 more came in 55 minutes
        (lately(12.0, slots=4), False),  # seen for 15 minutes: followed for 15, 3 GiB
        (lately(60.0, slots=4), True),
        (lately(8.0), False),  # an hour on, a GiB is still free
        (np.repeat([40.0, 70.0], 6) * 1024, False),  # one step up
        (np.repeat([40.0, 55.0, 70.0], 4) * 1024, True),  # it climbs by steps
        (np.append(lately(12.0)[:-1], np.nan), False),  # not seen of late
        (lately(12.0, now_gib=79.0), False),  # full already
    ],
)
def test_steady_growth_of_the_last_hour_is_followed_for_as_long_as_it_was_seen(
    used: Any, told: bool
) -> None:
    """A leak is told although the forecast, which learned from days, sees none."""
    flat = make_path(60_000, 61_000, 62_000)
    job = make_job(flat, np.full(96, 61_000.0), lately_mib=used, lately_until=NOW)
    found = watch_memory([job])
    assert [finding.outlook for finding in found] == [MemoryOutlook.RUNS_OUT] * told
    growth = growth_towards(used, 0.985 * LIMIT)
    assert (growth is not None) is told
    if growth is not None:
        assert found[0].at == NOW + timedelta(hours=growth.full_in_hours)
        assert found[0].probability == pytest.approx(1 / 3)
        assert found[0].needed_mib >= 0.985 * LIMIT
        assert any("GiB an hour" in fact for fact in found[0].evidence)


@given(
    st.lists(st.one_of(st.floats(0, 90_000), st.just(float("nan"))), max_size=30),
    st.floats(1_000, 90_000),
)
def test_growth_is_never_followed_further_than_it_was_seen(used: list[float], limit: float) -> None:
    """Whatever the readings: full within the time seen, from below the limit, by a rising line."""
    growth = growth_towards(np.array(used, float), limit)
    if growth is not None:
        assert growth.mib_per_hour > 0
        assert 0 < growth.full_in_hours <= growth.seen_hours * (1 + 1e-9)
        assert growth.seen_hours <= 1
        assert growth.expected_mib >= limit > used[-1]


def test_flat_memory_below_the_board_gives_nothing() -> None:
    """A job that stays at half of its board needs no word."""
    flat = make_path(40_000, 41_000, 42_000)
    assert watch_memory([make_job(flat, np.full(96, 41_000.0))]) == ()


def test_a_pool_that_is_full_is_no_alarm() -> None:
    """A server that took all of the board at its start and lives will not run out."""
    full = make_path(81_000, 81_200, 81_559)
    assert watch_memory([make_job(full, np.full(96, 81_300.0))]) == ()


@pytest.mark.parametrize("job", [
    make_job(None, np.full(96, 1000.0)), make_job(climbing(), np.full(96, np.nan)),
])  # fmt: skip
def test_unknown_memory_gives_nothing(job: WatchedJob) -> None:
    """Without a forecast, or without a single reading, nothing is said."""
    assert watch_memory([job]) == ()


def test_the_calibrated_peak_alone_can_tell() -> None:
    """Slots that each are safe may still have a peak beyond the board: at least one in ten."""
    peak = WindowPeak(
        quantity=Quantity.MEMORY, window_hours=24, q90=82_000, q95=85_000, cohort="job", scores=40,
        coverage_q90_ratio=0.9,
    )  # fmt: skip
    safe = make_path(50_000, 51_000, 55_000)
    found = only(make_job(safe, np.full(96, 60_000.0), peaks=(peak,)))
    assert (found.outlook, found.probability) == (MemoryOutlook.RUNS_OUT, 0.1)


def test_a_threshold_decides_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chances are told where the threshold is lower."""
    near = make_path(60_000, 65_000, 79_000)
    job = make_job(near, np.full(96, 65_000.0))
    assert watch_memory([job]) == ()
    monkeypatch.setattr(watch, "REPORTED_FROM", 0.01)
    assert watch_memory([job])


def test_room_after_a_phase_is_told() -> None:
    """After an evaluation that took 70 GiB the job needs 20: half of the board is free."""
    used = np.concatenate([np.full(48, 70_000.0), np.full(12, 20_000.0)])
    found = only(make_job(make_path(19_000, 20_000, 21_000), used))
    assert found.outlook is MemoryOutlook.ROOM
    assert found.room_mib == pytest.approx(LIMIT - 1.1 * 21_000)
    assert "70,000" not in found.why
    assert "68.4 GiB is over" in found.why


def test_room_that_was_always_there_is_no_news() -> None:
    """A job that never used the board freed nothing."""
    assert watch_memory([make_job(make_path(9_000, 10_000, 11_000), np.full(96, 10_000.0))]) == ()


def test_without_a_recipe_every_remedy_is_named_in_order() -> None:
    """Spread, shard, recompute, a larger GPU that exists, a smaller micro-batch, move."""
    found = only(make_job(climbing(), np.linspace(40, 60, 48) * 1024))
    assert [entry.remedy for entry in found.advice] == list(MemoryRemedy)
    larger = found.advice[3]
    assert larger.text.startswith("H20-96GB")


def with_recipe(framework: str) -> MemoryFinding:
    """What is foreseen of a job that climbs to its board and trains in a known way."""
    recipe = TrainingJob(
        shape=known_model("llama3.2-3b"),
        framework=framework,
        parallelism=Parallelism(data=2),
        micro_batch=4,
        sequence_length=4096,
        length_varies=False,
        optimizer="adamw",
        recompute=Recompute.NONE,
    )
    return only(make_job(climbing(), np.linspace(40, 60, 48) * 1024, recipe=recipe))


def test_with_a_recipe_remedies_say_what_they_do() -> None:
    """What helps says the peak after it, scaled by what the job really needs; what does not, no."""
    found = with_recipe("torchtitan")
    told = {entry.remedy: entry for entry in found.advice}
    needed = found.peak_q50_mib
    assert set(told) == set(MemoryRemedy)
    for remedy in (MemoryRemedy.SPREAD, MemoryRemedy.RECOMPUTE, MemoryRemedy.SMALLER_MICRO_BATCH):
        expected = told[remedy].expected_mib
        assert expected is not None
        assert expected < max(needed, found.peak_q95_mib)
        assert told[remedy].fits == (expected <= 0.985 * LIMIT)
    assert told[MemoryRemedy.SMALLER_MICRO_BATCH].text.startswith("a micro-batch of 2")


@given(
    limit=st.floats(1, 200_000),
    middle=st.floats(1_000, 100_000),
    below=st.floats(0, 500),
    above=st.floats(0, 50_000),
)
def test_the_chance_falls_as_the_limit_rises(
    limit: float, middle: float, below: float, above: float
) -> None:
    """A chance lies in 0..1 and never grows with the limit."""
    path = make_path(middle - below, middle, middle + above)
    here, higher = exceedance_of(path, limit)[0], exceedance_of(path, limit * 1.1)[0]
    assert 0 <= higher <= here <= 1


@pytest.mark.parametrize("framework", ["transformers", "megatron", "nobody's", ""])
def test_a_remedy_names_the_flag_of_the_jobs_framework(framework: str) -> None:
    """With the new size; of a framework that is not known it names none."""
    found = with_recipe(framework)
    texts = {advice.remedy: advice.text for advice in found.advice}
    smaller = {
        "transformers": " (--per_device_train_batch_size 2): ",
        "megatron": " (--micro-batch-size 2): ",
    }.get(framework, "accumulation: ")
    assert smaller in texts[MemoryRemedy.SMALLER_MICRO_BATCH]
    assert ("--gradient_checkpointing true" in texts[MemoryRemedy.RECOMPUTE]) is (
        framework == "transformers"
    )


_DIALECTS = Path(__file__).parents[2] / "dashboard" / "submission" / "launchers" / "dialects.toml"


@pytest.mark.parametrize("framework", sorted(framework_flags()))
def test_flags_are_named_as_launch_commands_are_read(framework: str) -> None:
    """What is advised is what `trimtab estimate -- COMMAND` reads of that framework."""
    assert framework_traits(framework).name == framework
    known = set(re.findall(r"[a-z][a-z0-9_.]+", _DIALECTS.read_text(encoding="utf-8")))
    if framework.partition("_")[0] not in known:
        return
    for remedy in (MemoryRemedy.RECOMPUTE, MemoryRemedy.SMALLER_MICRO_BATCH):
        flag = framework_flags()[framework][remedy].lstrip("-")
        key = re.split(r"[ =:]", flag)[0].replace("-", "_")
        assert {key, key.removeprefix("actor_rollout_ref.")} & known, key
