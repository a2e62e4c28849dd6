"""The score against a count by hand, over drawn fleets; its parts on every door; its badge."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from beds.api_clients import LOCAL, clients
from beds.stated_time import clock_at
from drawn import examples
from factories import H100, NOW, make_collected, make_job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboard.accounting.cost.statement import make_cost_statement
from dashboard.accounting.energy.score import Score, asked_score, score_badge
from dashboard.cli import main
from data.facts.columns import SAMPLES, check_frame
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.store import Store, open_store

SLOT = timedelta(minutes=5)
SLOTS = 24
BEGIN = NOW - SLOTS * SLOT
STATES = ("worked", "idle", "mixed", "unread", "contradicted", "free", "unattributed", "silent")
Fleet = list[list[str]]
PARTS = ("worked", "idle", "free", "contradicted", "unread", "unattributed", "unobserved")

fleets = st.lists(
    st.lists(st.sampled_from(STATES), min_size=SLOTS, max_size=SLOTS), min_size=1, max_size=3
)


def readings(fleet: Fleet, begin: pd.Timestamp) -> pd.DataFrame:
    """A reading a minute of each board; one at the beginning, so that all are there since then."""
    rows = []
    for board, states in enumerate(fleet):
        for minute in range(5 * SLOTS + 1):
            state = states[max(0, minute - 1) // 5]
            if state == "silent" and minute > 0:
                continue
            used: float | None = 0.0
            if state in ("worked", "unattributed"):
                used = 1.0
            elif state == "mixed":
                used = 0.25
            elif state in ("unread", "contradicted"):
                used = None
            held = state not in ("free", "unattributed", "silent")
            rows.append(
                {
                    "sampled_at": begin + pd.Timedelta(minutes=minute),
                    "gpu_uuid": f"GPU-{board}",
                    "node": "n1",
                    "gpu_index": str(board),
                    "gpu_model": H100,
                    "job_id": "search/ranker-0" if held else "",
                    "utilization_ratio": np.nan if used is None else used,
                    "utilization_signal": "" if used is None else "sm_active",
                    "memory_used_mib": 40_000.0 if held or used else 0.0,
                    "memory_total_mib": 81_559.0,
                }
            )
    frame = pd.DataFrame(rows)
    frame["sampled_at"] = frame["sampled_at"].astype("datetime64[us, UTC]")
    return check_frame(frame, SAMPLES)


def contradicted(fleet: Fleet, begin: pd.Timestamp) -> pd.DataFrame:
    """A row for each slot in which a counter was contradicted."""
    rows = [
        {
            "slot_start": begin + number * SLOT,
            "gpu_uuid": f"GPU-{board}",
            "mig_instance": "",
            "counter": "sm_active",
            "reading": 0.0,
            "others": "gpu_util 98 %",
        }
        for board, states in enumerate(fleet)
        for number, state in enumerate(states)
        if state == "contradicted"
    ]
    columns = ["slot_start", "gpu_uuid", "mig_instance", "counter", "reading", "others"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(
        slot_start=pd.to_datetime(frame["slot_start"], utc=True).astype("datetime64[us, UTC]"),
        reading=frame["reading"].astype("float64"),
    )


def counted(fleet: Fleet) -> dict[str, float]:
    """The oracle: minute by minute, by what the board was drawn to do in it."""
    minutes = dict.fromkeys(PARTS, 0.0)
    for states in fleet:
        seen_at = 0
        for minute in range(1, 5 * SLOTS + 1):
            state = states[(minute - 1) // 5]
            if state == "silent":
                continue
            gap, seen_at = minute - seen_at, minute
            if gap > 5:
                minutes["unobserved"] += gap
            elif state == "mixed":
                minutes["worked"] += 0.25 * gap
                minutes["idle"] += 0.75 * gap
            else:
                minutes[state] += gap
        minutes["unobserved"] += 5 * SLOTS - seen_at
    return {name: amount / 60 for name, amount in minutes.items()}


def keep(store: Store, fleet: Fleet, begin: Any = BEGIN) -> None:
    """Keep what the fleet showed."""
    begin = pd.Timestamp(begin)
    samples = readings(fleet, begin)
    store.keep(
        make_collected(
            samples,
            jobs=(make_job(),),
            contradictions=contradicted(fleet, begin),
            batch_id=f"{begin}",
        )
    )


def parts_of(score: Score) -> dict[str, float]:
    """The parts of a score by name."""
    return {name: getattr(score, f"{name}_hours") for name in PARTS}


def adds_up(store: Store, score: Score) -> None:
    """To what was bought, and to the states of the statement of cost."""
    parts = parts_of(score)
    assert sum(parts.values()) == pytest.approx(score.bought_hours)
    cost = make_cost_statement(store.reader, Settings(), start=score.start, end=score.end)
    total = cost.total
    assert score.bought_hours == pytest.approx(total.board_hours + cost.unobserved_hours)
    assert parts["free"] == pytest.approx(total.free_hours)
    assert parts["unattributed"] == pytest.approx(total.unattributed_hours)
    held = total.used_hours + total.idle_hours + total.shared_hours + total.unclear_hours
    assert score.bought_hours - held == pytest.approx(
        parts["free"] + parts["unattributed"] + parts["unobserved"]
    )
    if not total.shared_hours:
        assert parts["worked"] == pytest.approx(total.used_hours)
        assert parts["idle"] == pytest.approx(total.idle_hours)


@given(fleet=fleets)
@settings(
    max_examples=examples(12),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
def test_the_parts_are_those_counted_by_hand(
    fleet: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The unread and the contradicted are neither idle nor worked, whatever the fleet did."""
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('score')}/t.duckdb") as store:
        keep(store, fleet)
        score = asked_score(store.reader, Settings(), start=BEGIN, end=NOW)
        adds_up(store, score)
    hours = counted(fleet)
    assert parts_of(score) == {name: pytest.approx(hours[name], abs=1e-6) for name in PARTS}
    known = hours["worked"] + hours["idle"] + hours["free"]
    if score.share is None:
        assert known == pytest.approx(0.0)
        return
    unknown = score.bought_hours - known
    assert score.share.central == pytest.approx(100 * hours["worked"] / known)
    assert score.share.low == pytest.approx(100 * hours["worked"] / score.bought_hours)
    assert score.share.high == pytest.approx(100 * (hours["worked"] + unknown) / score.bought_hours)


def test_what_jobs_share_worked_as_the_board_did(store: Store) -> None:
    """Whose the work is nobody knows; that it was done is read from the board."""
    samples = readings([["mixed"] * SLOTS], pd.Timestamp(BEGIN))
    other = samples.assign(job_id="search/other-0")
    store.keep(make_collected(pd.concat([samples, other], ignore_index=True), jobs=(make_job(),)))
    score = asked_score(store.reader, Settings(), start=BEGIN, end=NOW)
    adds_up(store, score)
    assert score.worked_hours == pytest.approx(0.5)
    assert score.idle_hours == pytest.approx(1.5)


def test_the_trend_has_the_interval_of_both(store: Store) -> None:
    """All that may have changed: from the one's high to the other's low, and back."""
    keep(store, [["worked"] * 12 + ["unread"] * 12], BEGIN - SLOTS * SLOT)
    keep(store, [["unread"] + ["idle"] * 17 + ["worked"] * 6])
    score = asked_score(store.reader, Settings(), start=BEGIN, end=NOW)
    assert score.before == Range(low=50.0, central=100.0, high=100.0, unit="%")
    change = score.change
    assert change is not None
    assert change.central == pytest.approx(100 * (6 / 23 - 1))
    assert change.low == pytest.approx(-75.0)
    assert change.high == pytest.approx(100 * 7 / 24 - 50)


@pytest.mark.parametrize(("slots", "compares"), [(0, False), (8, False), (16, True), (24, True)])
def test_a_time_that_nobody_watched_is_no_comparison(
    store: Store, slots: int, compares: bool
) -> None:
    """Some minutes of a week before say nothing of that week."""
    if slots:
        states = ["silent"] * (SLOTS - slots) + ["worked"] * slots
        keep(store, [states], BEGIN - SLOTS * SLOT)
    keep(store, [["idle"] * 12 + ["worked"] * 12])
    score = asked_score(store.reader, Settings(), start=BEGIN, end=NOW)
    assert score.share is not None
    assert (score.before is not None, score.change is not None) == (compares, compares)


def test_every_door_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Command, API and badge; the badge is kept under its tag, and takes no parameter."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with clock_at(NOW), open_store(url) as store:
        keep(store, [["worked"] * 6 + ["idle"] * 6 + ["free"] * 6 + ["contradicted"] * 6])
        with clients(store, LOCAL, lambda: NOW) as client:
            api = client(peer="127.0.0.1")
            told = api.get("/api/v1/score").json()
            picture = api.get("/api/v1/score.svg")
            again = api.get("/api/v1/score.svg", headers={"If-None-Match": picture.headers["etag"]})
            refused = api.get("/api/v1/score.svg?text=<script>")
    with clock_at(NOW):
        assert main(["--quiet", "--store", url, "score", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(
        json.dumps(told).replace("Z", "+00:00")
    )
    assert told["contradicted_hours"] == pytest.approx(0.5)
    assert told["share"]["central"] == pytest.approx(100 / 3)
    assert (picture.headers["content-type"], again.status_code) == ("image/svg+xml", 304)
    texts = [part.text for part in ElementTree.fromstring(picture.content).iter() if part.text]  # noqa: S314 - ours
    low, high = (f"{told['share'][bound]:.0f}" for bound in ("low", "high"))
    assert f"33 % ({low}–{high})" in texts
    assert 400 <= refused.status_code < 500


def test_nothing_known_is_told_as_unknown(store: Store) -> None:
    """No share, no trend, and a badge that says so."""
    keep(store, [["unread"] * SLOTS])
    score = asked_score(store.reader, Settings(), start=BEGIN, end=NOW)
    assert (score.share, score.change) == (None, None)
    assert b"unknown" in score_badge(score)
