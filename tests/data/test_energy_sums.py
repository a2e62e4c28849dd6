"""What the statement adds up: each sum as plain Python makes it from the rows of the roll-up."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from factories import make_collected, make_job, make_samples

from data.settings.all_settings import RetentionSettings
from data.store import Store
from data.store.facts.energy_parts import EnergyKey, Periods

END = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOURS = 24
RATHER = {
    "power_weight = sample_weight * 0.4": 0,
    "power_weight = 0": 1,
    "sample_weight = 0.5, power_weight = 0.2": 2,
    "sample_weight = 0.2, power_weight = 0.5": 3,
    "joules = NULL": 4,
    "shared_samples = samples / 2": 5,
    "shared_samples = samples, joules = 7200000": 6,
    "used_board_seconds = 0.9 * known_board_seconds, shared_samples = samples / 3": 7,
}
"""What the hour of that number in a day's eighth is made to say."""


def expected(rows: pd.DataFrame) -> dict[str, float]:
    """The sums of rows, by the rules that `EnergyReader.energy_parts` states."""
    sums: dict[str, float] = {}

    def add(name: str, value: float) -> None:
        sums[name] = sums.get(name, 0.0) + value

    for row in rows.itertuples():
        known = not np.isnan(row.joules)
        if not known:
            measured = 0.0
        elif row.sample_weight > 0 and row.power_weight > 0:
            measured = min(row.power_weight / row.sample_weight, 1.0)
        else:
            measured = 1.0
        shared = row.shared_samples / row.samples if row.samples else 0.0
        joules = row.joules if known else 0.0
        idle = row.known_board_seconds - row.used_board_seconds
        add("board_seconds", row.board_seconds)
        add("measured_seconds", row.board_seconds * measured)
        add("joules", joules)
        if row.holder == "job":
            add("held_seconds", row.board_seconds)
            add("idle_seconds", idle)
            add("used_seconds", row.used_board_seconds)
            add("shared_seconds", row.board_seconds * shared)
            add("alone_used_seconds", row.used_board_seconds * (1 - shared))
            add("alone_idle_seconds", idle * (1 - shared))
            add("shared_joules", joules * shared)
        if known and row.known_board_seconds > 0:
            add("scored_seconds", row.board_seconds)
            add("scored_joules", joules)
            add("scored_work_seconds", row.used_board_seconds * (row.holder == "job"))
    return sums


def test_sums_are_those_of_the_rows(store: Store) -> None:
    """Boards shared for a while, power for a part of the time or none, unknown energy."""
    samples = make_samples(gpus=2, minutes=HOURS * 60, end=END)
    samples.loc[samples["gpu_uuid"] == "GPU-0001", "job_id"] = ""
    store.keep(make_collected(samples, jobs=(make_job(),)))
    start = END - timedelta(hours=HOURS)
    with store._engine.begin() as connection:
        for change, number in RATHER.items():
            connection.exec_driver_sql(
                f"UPDATE hourly SET {change} WHERE"  # noqa: S608 - of this table
                f" mod(CAST(epoch(slot_start) / 3600 AS BIGINT), 8) = {number}"
            )
        rows = pd.DataFrame(
            connection.execute(
                sa.text("SELECT * FROM hourly WHERE slot_start >= :start AND slot_start < :until"),
                {"start": start, "until": END},
            ).mappings()
        )
    rows["joules"] = rows["joules"].astype(float)
    assert len(rows) >= 2 * HOURS
    found = store.reader.energy_parts(
        start=start, end=END, key=EnergyKey.BOARD, periods=Periods(), hour_shift=None
    )
    for name, value in expected(rows).items():
        assert found[name].sum() == pytest.approx(value, rel=1e-6), name


def test_a_range_begins_at_the_hour_from_which_slots_are_kept(store: Store) -> None:
    """Neither the row of that hour nor its slots count twice."""
    store.keep(make_collected(make_samples(minutes=HOURS * 60, end=END), jobs=(make_job(),)))
    kept = RetentionSettings(raw_days=1, five_minute_days=1, hourly_days=30)
    store.forget(kept, END + timedelta(hours=12))
    since = END - timedelta(hours=12)
    for begin, minutes in ((since, 20), (since - timedelta(minutes=40), 80)):
        found = store.reader.energy_parts(
            start=begin,
            end=begin + timedelta(minutes=minutes),
            key=EnergyKey.FLEET,
            periods=Periods(),
            hour_shift=None,
        )
        assert found["board_seconds"].sum() == pytest.approx(60 * minutes)


@pytest.mark.parametrize(
    ("seen", "since"),
    [
        ([(-3.0, 30)], None),
        ([(-3.0, 30), (30.0, 5)], 0.0),
        ([(-7.5 * 24, 60), (30.0, 5)], None),
        ([(-7.5 * 24, 60), (1.0, 60)], 0.0),
        ([(-30.0, 30), (24.0 + 7.5 * 24, 60)], None),
        ([(24.0, 60)], None),
        ([(26.0, 60)], None),
        ([(5.0, 20)], 5.0 + 40 / 60),
        ([(0.0, 60), (23.0, 60)], 0.0),
        ([(0.0, 60)], 0.0),
    ],
)
def test_boards_count_from_when_they_were_there(
    store: Store, seen: list[tuple[float, int]], since: float | None
) -> None:
    """Seen before and after a range, all along; first seen in it, from then; else not at all.

    `seen`: hours from the begin of the range, and minutes of that hour up to its end.
    """
    begin = END - timedelta(hours=40 * 24)
    watched = [(-10.0 * 24, 60), (0.0, 60), (12.0, 60)]  # another board, from before
    frames = []
    for board, stays in (("GPU-old", watched), ("GPU-new", seen)):
        for hour, minutes in stays:
            at = begin + timedelta(hours=np.floor(hour) + 1, minutes=-1)
            frames.append(make_samples(minutes=minutes, end=at).assign(gpu_uuid=board))
    store.keep(make_collected(pd.concat(frames, ignore_index=True), jobs=(make_job(),)))
    found = store.reader.boards_since(start=begin, end=begin + timedelta(days=1))
    hours = sorted((found - begin.timestamp()) / 3600)
    wanted = [0.0] if since is None else sorted([0.0, since])
    assert hours == pytest.approx(wanted, abs=0.05)
