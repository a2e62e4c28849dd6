"""History that is kept equals what is made anew, whatever comes, in whatever order."""

import random
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from beds.stores import back_to_schema
from factories import NOW, make_collected, make_job, make_samples

from data.base.clock import floor_to_slot
from data.facts.jobs import Job
from data.settings.all_settings import RetentionSettings
from data.store import Store
from data.store.engine import table_reader
from data.store.engine.migrate import migrate
from data.store.engine.record_json import from_json
from data.store.facts import samples_sql

DAYS = 9
START = NOW - timedelta(days=DAYS)
JOBS = tuple(make_job(f"team-{at % 2}/run-{at}", first_seen_at=START) for at in range(5))


def drawn_pieces(draw: random.Random) -> list[pd.DataFrame]:
    """Samples of three boards every five minutes, in pieces: holes of hours, jobs that change."""
    pieces = []
    for board in range(3):
        frame = make_samples(minutes=DAYS * 24 * 60, gpu_uuid=f"GPU-{board:04d}").iloc[::5].copy()
        hours = np.arange(len(frame)) // 12
        stays = [draw.choice([*JOBS, None]) for _ in range(DAYS)]
        frame["job_id"] = [
            "" if (job := stays[hour // 24]) is None else job.job_id for hour in hours
        ]
        frame["utilization_ratio"] = np.round(
            np.random.default_rng(draw.randrange(10**6)).uniform(0, 1, len(frame)), 3
        )
        missing: set[int] = set()
        for _hole in range(4):
            first = draw.randrange(DAYS * 24)
            missing.update(range(first, first + draw.choice([1, 5, 30, 60])))
        frame = frame[[hour not in missing for hour in hours]]
        cuts = sorted({0, len(frame), *(draw.randrange(len(frame)) for _ in range(3))})
        pieces += [frame.iloc[first:end] for first, end in pairwise(cuts)]
    draw.shuffle(pieces)
    return [*pieces, pieces[0]]


def made_anew(store: Store, slot_seconds: int, end: datetime = NOW) -> dict[str, pd.DataFrame]:
    """Both histories of the store by the queries that make them from the roll-ups alone."""
    span = {"start": START - timedelta(days=1), "end": floor_to_slot(end, 3600)}
    return {
        "jobs": store.reader._frame(
            samples_sql.JOB_HISTORY,
            **span,
            slot_seconds=slot_seconds,
            job_id="",
            whenever=True,
            seen_since=START,
            seen_before=NOW,
        ),
        "groups": store.reader._frame(samples_sql.GROUP_HISTORY, **span, slot_seconds=3600),
    }


def read(store: Store, slot_seconds: int, end: datetime = NOW) -> dict[str, pd.DataFrame]:
    """Both as the product reads them."""
    span = {"start": START - timedelta(days=1), "end": floor_to_slot(end, 3600)}
    history = store.reader.job_history("", **span, slot_seconds=slot_seconds)
    return {"jobs": history, "groups": store.reader.group_history(**span, slot_seconds=3600)}


def require_equal(store: Store, slot_seconds: int, end: datetime = NOW) -> None:
    """Compare to the rounding of sums; what was unseen, where no board was away for too long."""
    mine, anew = read(store, slot_seconds, end), made_anew(store, slot_seconds, end)
    for name, frame in mine.items():
        skipped = ["unseen_ratio"] if name == "groups" else []
        rows, others = (
            part[part["kind"] != "gpu_model"] if skipped else part for part in (frame, anew[name])
        )
        pd.testing.assert_frame_equal(
            rows.drop(columns=skipped).reset_index(drop=True),
            others.drop(columns=skipped).reset_index(drop=True),
            rtol=1e-9,
        )


def kept(store: Store) -> dict[str, int]:
    """The number of rows that are kept."""
    with store._engine.connect() as connection:
        return {
            table: connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()  # noqa: S608
            for table in ("group_hours", "job_slots")
        }


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_equals_what_is_made_anew(store: Store, seed: int) -> None:
    """Late rows, repeats, holes, changed slot lengths and a state that is lost."""
    draw = random.Random(seed)  # noqa: S311 - draws of a test
    for number, piece in enumerate(drawn_pieces(draw)):
        store.keep(make_collected(piece, jobs=JOBS, batch_id=str(number)))
        slot_seconds = draw.choice([300, 900, 900, 3600, 5400])
        store.keep_history(slot_seconds=slot_seconds)
        if draw.random() < 0.2:
            with store._engine.begin() as connection:
                connection.exec_driver_sql("DELETE FROM kept_slots")
        require_equal(store, slot_seconds)
        require_equal(store, 1800)
    store.keep_history(slot_seconds=900)
    assert min(kept(store).values()) > 100


def test_a_hole_is_told_as_unseen_up_to_its_reach(store: Store) -> None:
    """A board that is away for two days and held before and after: its hours are unseen ones."""
    parts = []
    for board in range(2):
        frame = make_samples(minutes=DAYS * 24 * 60, gpu_uuid=f"GPU-{board:04d}").iloc[::5]
        away = frame["sampled_at"].between(START + timedelta(days=2), START + timedelta(days=4))
        parts.append(frame[~away] if board else frame)
    store.keep(make_collected(pd.concat(parts, ignore_index=True)))
    anew = made_anew(store, 900)["groups"]
    store.keep_history(slot_seconds=900)
    pd.testing.assert_frame_equal(read(store, 900)["groups"], anew, rtol=1e-9)
    assert (anew["unseen_ratio"] == 0.5).sum() >= 2 * 46


def test_kept_rows_are_made_once_and_read(store: Store) -> None:
    """A second cycle makes nothing; what is kept is what is read; it goes with its retention."""
    store.keep(make_collected(make_samples(minutes=DAYS * 24 * 60).iloc[::5]))
    steps: list[tuple[int, int]] = []
    store.keep_history(slot_seconds=900, progress=lambda at, total: steps.append((at, total)))
    assert steps == [(1, 2), (2, 2), (1, 3), (2, 3), (3, 3)]
    store.keep_history(slot_seconds=900, progress=lambda at, total: steps.append((at, total)))
    assert len(steps) == 5
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE job_slots SET effective_gpus = 7")
    history = read(store, 900)["jobs"]
    assert 0.9 < (history["effective_gpus"] == 7).mean() < 1
    store.forget(RetentionSettings(), NOW + timedelta(days=9000))
    assert set(kept(store).values()) == {0}


def test_jobs_that_ended_long_ago_are_no_objects(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there were, a view and what is asked between cycles make no record of them."""
    built: list[type] = []

    def noted(kind: type[Any], text: str) -> Any:
        built.append(kind)
        return from_json(kind, text)

    monkeypatch.setattr(table_reader, "from_json", noted)
    long_ago = NOW - timedelta(days=20)
    counts = []
    for ended in (2, 40):
        past = (
            make_job(f"team/past-{at}", first_seen_at=long_ago, last_seen_at=long_ago)
            for at in range(ended)
        )
        jobs = (make_job("team/now"), *past)
        samples = make_samples(job_id="team/now")
        store.keep(make_collected(samples, jobs=jobs, batch_id=str(ended)))
        store.keep_history(slot_seconds=900)
        built.clear()
        reader = store.reader
        assert reader.planning_view(NOW, slot_seconds=900, history_days=42).jobs
        assert [job.job_id for job in reader.jobs_lately()] == ["team/now"]
        assert list(reader.job_holders(seen_since=NOW - timedelta(days=7))["job_id"])
        counts.append(built.count(Job))
    assert counts == [2, 2]
    assert len(store.reader.jobs()) == 41


def test_rows_of_groups_of_schema_24_stay_kept(store: Store) -> None:
    """Rows of jobs go: they counted boards that nobody read as the mean of the others."""

    def marks() -> set[tuple[str, int, Any]]:
        with store._engine.connect() as connection:
            return {tuple(row) for row in connection.exec_driver_sql("SELECT * FROM kept_slots")}

    store.keep(make_collected(make_samples(minutes=DAYS * 24 * 60).iloc[::5]))
    store.keep_history(slot_seconds=900)
    before = marks()
    back_to_schema(store, 24)
    migrate(store._engine)
    assert {name for name, _seconds, _until in before} == {"group_hours", "job_slots"}
    assert marks() == {row for row in before if row[0] == "group_hours"}
    assert kept(store)["job_slots"] == 0
    require_equal(store, 900)


def test_little_history_is_kept_later(store: Store) -> None:
    """Less than an hour of it leaves no row, and nothing before it is ever made."""
    store.keep(make_collected(make_samples(minutes=30)))
    steps: list[tuple[int, int]] = []
    for _cycle in range(2):
        store.keep_history(slot_seconds=900, progress=lambda at, total: steps.append((at, total)))
        require_equal(store, 900)
    assert steps == []
    later = make_samples(minutes=60 * 48, end=NOW + timedelta(days=3)).iloc[::5]
    store.keep(make_collected(later, batch_id="later"))
    store.keep_history(slot_seconds=900, progress=lambda at, total: steps.append((at, total)))
    assert steps == [(1, 1)]


def test_days_without_jobs_are_made_once(store: Store) -> None:
    """The last days hold no job: they leave no row, and still no cycle makes them again."""
    early = make_samples(minutes=60, end=START + timedelta(hours=1), job_id="team/past")
    idle = make_samples(minutes=DAYS * 24 * 60, gpu_uuid="GPU-0009", job_id="").iloc[::5]
    store.keep(make_collected(pd.concat([early, idle], ignore_index=True)))
    steps: list[tuple[int, int]] = []
    for _cycle in range(2):
        store.keep_history(slot_seconds=900, progress=lambda at, total: steps.append((at, total)))
    assert steps == [(1, 2), (2, 2), (1, 3), (2, 3), (3, 3)]
    assert kept(store)["job_slots"] <= 8


@pytest.mark.parametrize("slot_seconds", [900, 5400])
def test_years_without_samples_are_passed_over(store: Store, slot_seconds: int) -> None:
    """A clock that ran ahead by ten years: the days that have samples are made, and no others."""
    end = NOW + timedelta(days=3650, minutes=20)
    for at in (START + timedelta(days=1), NOW, end):
        samples = make_samples(minutes=36 * 60, end=at).iloc[::5]
        store.keep(make_collected(samples, batch_id=str(at)))
    steps: list[int] = []
    store.keep_history(slot_seconds=slot_seconds, progress=lambda _at, total: steps.append(total))
    assert 4 <= len(steps) <= 9
    require_equal(store, slot_seconds, end)


@pytest.mark.parametrize(
    ("ago_hours", "is_planned", "is_known"),
    [(0, True, True), (23, True, True), (25, False, True), (13 * 24, False, True),
     (15 * 24, False, False)],
)  # fmt: skip
def test_a_view_holds_what_runs_and_its_kin(
    store: Store, ago_hours: int, is_planned: bool, is_known: bool
) -> None:
    """A job is planned for a day after it was last seen, and tells of its kin for two weeks."""
    end = NOW - timedelta(hours=ago_hours)
    past = make_samples(end=end, job_id="team/past")
    now = make_samples(gpu_uuid="GPU-0009", job_id="team/now")
    jobs = (make_job("team/past", last_seen_at=end), make_job("team/now"))
    store.keep(make_collected(pd.concat([past, now], ignore_index=True), jobs=jobs))
    store.keep_history(slot_seconds=900)
    view = store.reader.planning_view(NOW, slot_seconds=900, history_days=42)
    ended = () if view.ended_history is None else tuple(view.ended_history["job_id"].unique())
    assert [job.job_id for job in view.jobs] == ["team/now", *["team/past"] * is_planned]
    assert set(view.history["job_id"]) == {job.job_id for job in view.jobs} == set(view.signals)
    assert len(view.known_jobs) == 1 + is_known
    assert ended == ("team/past",) * (is_known and not is_planned)
    assert [job.job_id for job in view.ended_jobs] == list(ended)
