"""Readings of one board against each other: who is outvoted, whichever counter it is."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from beds.nvml import H100 as NVML_H100
from beds.nvml import NOW, WINDOW, Play, collector
from factories import H100, make_samples

from collectors.readings.contradictions import COUNTERS, believed_samples, without_counters
from collectors.trace.column_map import load_map
from collectors.trace.files import Trace
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import ACTIVITY, check_frame
from data.store.facts.fact_reader import MIN_SLOTS

MEASURED = Path(__file__).parents[2] / "benchmarks" / "measured" / "slow_programs_h200.json"
PROGRAMS = json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]
BUSY = {
    "sm_active": 0.88, "gr_engine_active": 0.96, "tensor_active": 0.4, "dram_active": 0.5,
    "gpu_util": 0.97, "power_watts": 620.0,
}  # fmt: skip
REST = dict.fromkeys(BUSY, 0.0) | {"power_watts": 72.0}
PREFERENCE = ("sm_active", "gr_engine_active", "gpu_util")


def believed(
    *moments: dict[str, float],
    names: tuple[str, ...] = COUNTERS,
    model: str = H100,
    instance: str = "",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what is believed of readings a minute apart, of the counters of these names."""
    counters = {
        name: np.array([moment.get(name, np.nan) for moment in moments])
        for name in names
        if name != "power_watts"
    }
    preferred = [name for name in PREFERENCE if name in names]
    samples = make_samples(minutes=len(moments), gpu_model=model).assign(
        utilization_ratio=counters[preferred[0]],
        utilization_signal=preferred[0],
        power_watts=[moment["power_watts"] for moment in moments],
        power_limit_watts=700.0,
        mig_instance=instance,
    )
    return believed_samples(samples, counters, load_gpu_catalogue())


@pytest.mark.parametrize("level", [0.0, 0.03, 0.08])
@pytest.mark.parametrize("stuck", [("gr_engine_active",), ("sm_active",), ("gpu_util",),
                                   COUNTERS[:4]])  # fmt: skip
def test_a_counter_at_rest_beside_work_is_unknown(stuck: tuple[str, ...], level: float) -> None:
    """The others outvote it; the next signal tells the utilization and is named."""
    found, told = believed(*[BUSY | dict.fromkeys(stuck, level)] * 15)
    assert set(told["counter"]) == set(stuck) & set(told["counter"])
    assert set(stuck) & {"sm_active", "gr_engine_active", "gpu_util"} <= set(told["counter"])
    signal = next(name for name in PREFERENCE if name not in stuck)
    assert set(found["utilization_signal"]) == {signal}
    assert found["utilization_ratio"].tolist() == [BUSY[signal]] * 15
    assert found["power_watts"].tolist() == [620.0] * 15


@pytest.mark.parametrize("level", [0.6, 1.0])
@pytest.mark.parametrize("latched", COUNTERS[:5])
def test_a_counter_at_work_beside_rest_is_unknown(latched: str, level: float) -> None:
    """The mirror: latched on a board at rest."""
    found, told = believed(*[REST | {latched: level}] * 15)
    assert set(told["counter"]) == {latched}
    assert found["utilization_ratio"].tolist() == [0.0] * 15


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shows", PREFERENCE[1:])
def test_a_little_work_that_one_counter_tells_is_no_rest(seed: int, shows: str) -> None:
    """Too little to contradict the counters at rest; the counter that shows it tells these."""
    noise = np.random.default_rng(seed)
    names = PREFERENCE[PREFERENCE.index(shows) - 1 :]
    works = noise.random(60) < noise.uniform(0.25, 1.0)
    levels = noise.uniform(0.1, 0.4) * noise.normal(1.0, 0.02, 60) * works
    moments = [
        REST | dict.fromkeys(names[1:], level) | {names[0]: level / 45, "power_watts": 130.0}
        for level in levels
    ]
    found, told = believed(*moments, names=(*names, "power_watts"))
    ratio = found["utilization_ratio"]
    assert not (ratio <= 0.01)[works].any()
    assert (ratio[~works] == 0).all() or set(told["counter"]) == {*names}
    assert set(found["utilization_signal"][~ratio.isna() & works]) <= {shows}


@pytest.mark.parametrize("util", [0.0, 0.01, 0.02])
def test_a_trace_of_activity_is_rest(util: float) -> None:
    """A percent or two of GPU_UTIL, as of a query of the driver, are no work."""
    found, told = believed(*[REST | {"gpu_util": util}] * 60)
    assert told.empty
    assert (found["utilization_ratio"] <= 0.01).all()


@pytest.mark.parametrize("power", [75.0, 690.0])
def test_power_is_outvoted_by_two(power: float) -> None:
    """Stuck power is unknown where profiling and GPU_UTIL agree, at work and at rest."""
    truth = BUSY if power < 100 else REST
    found, told = believed(*[truth | {"power_watts": power}] * 15)
    assert set(told["counter"]) == {"power_watts"}
    assert found["power_watts"].isna().all()
    assert found["utilization_ratio"].tolist() == [truth["sm_active"]] * 15


def test_of_two_alone_the_counter_is_not_believed() -> None:
    """GPU_UTIL 0 at 620 W: the utilization is unknown, never 0."""
    found, told = believed(*[BUSY | {"gpu_util": 0.0}] * 15, names=("gpu_util", "power_watts"))
    assert told["counter"].tolist() == ["gpu_util"] * len(told)
    assert found["utilization_ratio"].isna().all()
    assert set(found["utilization_signal"]) == {""}
    assert found["power_watts"].tolist() == [620.0] * 15


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda row: row["name"])
@pytest.mark.parametrize("util", [0.0, 0.5, 1.0])
def test_measured_programs_contradict_nothing(program: dict[str, float], util: float) -> None:
    """Whatever GPU_UTIL shows between engine activity and 1, a real program is believed."""
    engine = program["engine_active"]
    moment = {
        "sm_active": program["sm_active"], "gr_engine_active": engine,
        "tensor_active": program["tensor_active"], "dram_active": program["dram_active"],
        "gpu_util": engine + util * (1 - engine) * (engine > 0.1),
        "power_watts": program["power_watts"],
    }  # fmt: skip
    found, told = believed(*[moment] * 15, model="H200-SXM-141GB")
    assert told.empty
    assert found["utilization_ratio"].tolist() == [program["sm_active"]] * 15


def test_rest_with_memory_in_use_is_believed() -> None:
    """A board that keeps a model loaded draws more than an empty one, and rests."""
    for watts in (72.0, 118.0, 131.0, 180.0):
        found, told = believed(*[REST | {"power_watts": watts}] * 15)
        assert told.empty
        assert found["utilization_ratio"].tolist() == [0.0] * 15


def test_work_in_bursts_behind_a_stuck_counter_is_seen_reading_by_reading() -> None:
    """Only the readings at work are contradicted: at rest 0 is the truth."""
    bursts = [BUSY if moment % 6 == 0 else REST for moment in range(30)]
    found, _told = believed(*[moment | {"sm_active": 0.0} for moment in bursts])
    at_work = found["utilization_ratio"] > 0
    assert at_work.tolist() == [moment % 6 == 0 for moment in range(30)]


@pytest.mark.parametrize("level", [0.2, 0.5, 0.67])
@pytest.mark.parametrize("frozen", ["gr_engine_active", "sm_active", "gpu_util", "power_watts"])
def test_a_counter_that_stands_still_while_the_others_move_is_unknown(
    frozen: str, level: float
) -> None:
    """Between rest and work its level is wrong by too little at a time, and never changes."""
    value = 700 * level if frozen == "power_watts" else level
    bursts = [BUSY if moment % 6 < 3 else REST for moment in range(30)]
    noise = np.random.default_rng(3).normal(1.0, 0.01, 30)
    moments = [
        {name: shown * noise[place] for name, shown in moment.items()} | {frozen: value}
        for place, moment in enumerate(bursts)
    ]
    _found, told = believed(*moments)
    assert set(told["counter"]) == {frozen}


@pytest.mark.parametrize("duty", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_moments_of_bursts_contradict_no_means(seed: int, duty: float) -> None:
    """GPU_UTIL and power show all or nothing of bursts whose means of 30 s vary little."""
    noise = np.random.default_rng(seed)
    moments = []
    for at_work in noise.random(600) < duty:
        mean = {name: float(noise.normal(duty, 0.03)) * BUSY[name] for name in COUNTERS[:4]}
        power = noise.normal(620.0 if at_work else 110.0, 5.0)
        moments.append(mean | {"gpu_util": 0.97 * at_work, "power_watts": power})
    _found, told = believed(*moments)
    assert told["counter"].value_counts().max() < MIN_SLOTS or told.empty


def test_of_an_instance_the_power_of_the_board_tells_nothing() -> None:
    """Another instance may draw it."""
    found, told = believed(*[REST | {"power_watts": 600.0}] * 15, instance="3")
    assert told.empty
    assert found["utilization_ratio"].tolist() == [0.0] * 15


def test_the_order_of_samples_changes_nothing() -> None:
    """Rows of two boards, shuffled, are believed as they were in order."""
    stuck, sound = (
        make_samples(minutes=20, gpu_uuid=uuid, power_watts=620.0, utilization_ratio=ratio)
        for uuid, ratio in (("GPU-1", 0.0), ("GPU-2", 0.9))
    )
    rows = pd.concat([stuck, sound], ignore_index=True).assign(power_limit_watts=700.0)
    order = np.random.default_rng(5).permutation(len(rows))

    def found(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        counters = {
            "sm_active": frame["utilization_ratio"].to_numpy(),
            "gpu_util": np.full(40, 0.95),
        }
        return believed_samples(
            frame.assign(utilization_signal="sm_active"), counters, load_gpu_catalogue()
        )

    one, told = found(rows)
    other, told_again = found(rows.iloc[order].reset_index(drop=True))
    assert set(told["gpu_uuid"]) == {"GPU-1"}
    pd.testing.assert_frame_equal(told, told_again)
    key = ["gpu_uuid", "sampled_at"]
    pd.testing.assert_frame_equal(
        one.sort_values(key, ignore_index=True), other.sort_values(key, ignore_index=True)
    )


def test_what_keeps_boards_at_work_is_unknown_too() -> None:
    """A contradicted counter is no evidence of the cause of slow work."""
    _found, told = believed(*[BUSY | {"sm_active": 0.0}] * 15)
    slots = told[["slot_start", "gpu_uuid", "mig_instance"]]
    activity = check_frame(slots.assign(sm_active=0.0, engine_active=0.96), ACTIVITY)
    cut = without_counters(activity, told)
    assert cut["sm_active"].isna().all()
    assert cut["engine_active"].tolist() == [0.96] * len(slots)


def test_a_trace_is_held_against_its_power(tmp_path: Path) -> None:
    """A column of utilization at 0 beside 630 of 700 W is unknown, and told."""
    path, where = tmp_path / "rows.csv", tmp_path / "map.toml"
    minutes = [f"2026-02-03T{8 + n // 60:02d}:{n % 60:02d}:00Z,b-7,0,630,t/j" for n in range(90)]
    path.write_text("\n".join(["at,board,busy,draw,job", *minutes]))
    where.write_text(
        '[time]\ncolumn = "at"\n[columns]\n'
        'gpu_uuid = {column = "board"}\njob_id = {column = "job"}\n'
        'utilization_ratio = {column = "busy", unit = "percent"}\n'
        'power_watts = {column = "draw", unit = "watts"}\n'
        f'[constants]\nnode = "n-4"\ngpu_model = "{H100}"\n'
    )
    pieces = list(Trace(path, load_map(where), now=utc_now()).pieces())
    assert all(piece.samples["utilization_ratio"].isna().all() for piece in pieces)
    assert sum(len(piece.contradictions) for piece in pieces) == 18


def test_nvml_is_held_against_itself(library: Path, play: Play, proc: Path) -> None:
    """SM activity of GPM at 0 beside the driver's own utilization and power."""
    play(lines=NVML_H100.format(0) + "gpu0 gpm 1 0\ngpu0 sm_util 0\ngpu0 utilization 97\n")
    one = collector(library, proc)
    with one.reading() as read:
        readings = [read(lambda: NOW)]
    collected = one.collected(readings, WINDOW)
    (row,) = collected.samples.to_dict("records")
    assert (row["utilization_signal"], row["utilization_ratio"]) == ("gpu_util", 0.97)
    assert set(collected.contradictions["counter"]) == {"sm_active", "gr_engine_active"}
