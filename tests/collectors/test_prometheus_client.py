"""How the client asks: split, again after a pause, within its time, and honest about gaps."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from beds.faulty_server import (
    POWER,
    FaultyServer,
    answers_series,
    faulty_server,
    hangs,
    resets,
    says,
)
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.prometheus import client as client_module
from collectors.prometheus import session
from collectors.prometheus.client import PrometheusClient, RangePart, end_aligned, parts_of
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.shared.collector import Window
from data.base.errors import SourceRefusedError, SourceUnreachableError, UnexpectedAnswerError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import PrometheusSettings

END = datetime(2026, 1, 5, 12, tzinfo=UTC)
START = END - timedelta(minutes=10)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for a request."""
    monkeypatch.setattr(session, "TIMEOUT_SECONDS", 1.0)


def client(server: FaultyServer, **options: Any) -> PrometheusClient:
    """A client of the server that has begun a collection."""
    one = PrometheusClient(PrometheusSettings(url=server.url, **options))
    one.begin()
    return one


def series(*values: str, board: str = "GPU-1", at: datetime = END) -> dict[str, Any]:
    """A series of the board with a reading a minute up to `at`."""
    first = at.timestamp() - 60 * (len(values) - 1)
    return {
        "metric": {"UUID": board},
        "values": [[first + 60 * place, value] for place, value in enumerate(values)],
    }


def power(one: PrometheusClient) -> list[dict[str, Any]]:
    """What the client gets of power over ten minutes."""
    return list(one.series(POWER, start=START, end=END, step_seconds=60))


def smallest(part: RangePart) -> Iterator[RangePart]:
    """The questions that are left when every one is refused."""
    halves = part.halves()
    if not halves:
        yield part
    for half in halves:
        yield from smallest(half)


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 40), st.integers(1, 900))
def test_splits_ask_every_step_of_every_share_once(steps: int, step: int) -> None:
    """Split to the end, each time step stands in exactly one question per share of the boards."""
    (whole,) = parts_of(POWER, "", START, START + timedelta(seconds=steps * step), step)
    asked = [(part.start, part.digits) for part in smallest(whole)]
    assert all(part.start == part.end for part in smallest(whole))
    times = {START + timedelta(seconds=place * step) for place in range(steps + 1)}
    shares = {digits for _start, digits in asked}
    assert len(asked) == len(set(asked)) == len(times) * len(shares)
    assert {start for start, _digits in asked} == times
    assert sorted("".join(shares if None not in shares else ())) == sorted("0123456789abcdef")
    assert sum(part.size for part in smallest(whole)) == pytest.approx(whole.size)


def test_long_ranges_are_asked_below_the_point_limit() -> None:
    """A month of minutes is several questions, each below 11,000 points, no step twice."""
    parts = list(parts_of(POWER, "", END - timedelta(days=30), END, 60))
    counts = [(part.end - part.start) // part.step + 1 for part in parts]
    assert max(counts) < 11_000
    assert sum(counts) == 30 * 24 * 60 + 1
    assert all(b.start - a.end == a.step for a, b in pairwise(parts))


def test_passing_failures_are_asked_again() -> None:
    """A reset and a 503 cost a pause each; the third answer counts."""
    with faulty_server(resets, says(503), answers_series(series("1"))) as server:
        one = client(server)
        assert [found["values"] for found in power(one)] == [[[END.timestamp(), "1"]]]
        assert one.answered() == (1.0, None)
        assert len(server.ranges()) == 3


def test_a_named_wait_is_kept() -> None:
    """After 429 with Retry-After the next question comes no sooner."""
    with faulty_server(says(429, b"", ("Retry-After", "1")), answers_series()) as server:
        began = time.monotonic()
        power(client(server))
        assert time.monotonic() - began >= 1
        assert len(server.ranges()) == 2


def test_no_pause_goes_beyond_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait longer than the time left is not begun."""
    with faulty_server(says(429, b"", ("Retry-After", "9"))) as server:
        monkeypatch.setattr(client_module, "BUDGET_SECONDS", 2.0)
        one = client(server)
        began = time.monotonic()
        assert power(one) == []
        assert time.monotonic() - began < 2
        with pytest.raises(SourceUnreachableError, match="429"):
            one.answered()


def test_used_up_time_is_a_gap_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the budget is spent, what is left is not asked, and said to be so."""
    with faulty_server(answers_series(series("1"))) as server:
        monkeypatch.setattr(client_module, "BUDGET_SECONDS", 0.2)
        one = client(server)
        assert power(one)
        time.sleep(0.3)
        assert power(one) == []
        assert one.answered() == (pytest.approx(0.5), START)
        (warning,) = one.take_warnings()
        assert POWER in warning
        assert "prometheus.selector" in warning
        assert len(server.ranges()) == 1


def test_refused_sizes_are_split_by_time() -> None:
    """After "too many samples" both halves are asked and the whole is answered."""
    refuses = says(422, b'{"status":"error","error":"query processing: too many samples"}')
    early, late = series("1", at=START), series("2")
    with faulty_server(refuses, answers_series(early), answers_series(late)) as server:
        one = client(server)
        assert [found["values"][0][1] for found in power(one)] == ["1", "2"]
        assert one.answered() == (1.0, None)
        whole, first, second = server.ranges()
        assert (first["start"], second["end"]) == (whole["start"], whole["end"])
        assert int(second["start"]) - int(first["end"]) == 60


def test_a_refused_half_is_a_named_gap() -> None:
    """What stays unanswered lowers completeness by its share and names metric, time and reason."""
    with faulty_server(
        says(422, b"too many samples"), answers_series(series("1", at=START)), says(400, b"broken")
    ) as server:
        one = client(server)
        assert len(power(one)) == 1
        share, gap = one.answered()
        assert share == pytest.approx(6 / 11)
        assert gap == START + timedelta(minutes=6)
        (warning,) = one.take_warnings()
        assert POWER in warning
        assert "2026-01-05 11:56" in warning
        assert "400" in warning


def test_a_hopeless_metric_is_given_up() -> None:
    """A server that refuses every size is not asked for every minute of every board."""
    with faulty_server(says(422, b"too many samples")) as server:
        one = client(server)
        assert power(one) == []
        assert len(server.ranges()) < 25
        with pytest.raises(SourceRefusedError, match="too many samples"):
            one.answered()
        (warning,) = one.take_warnings()
        assert "11:50 to 2026-01-05 12:00" in warning


def test_a_server_that_never_answers_in_time_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slow answers in a row end the collection; nothing waits for each question."""
    with faulty_server(hangs) as server:
        monkeypatch.setattr(session, "TIMEOUT_SECONDS", 0.3)
        one = client(server)
        began = time.monotonic()
        for _metric in range(5):
            assert power(one) == []
        assert time.monotonic() - began < 3 * 0.3 + 1
        assert len(server.ranges()) == 3


def test_a_proxy_that_gives_up_is_asked_less() -> None:
    """504 is tried again, then split."""
    with faulty_server(says(504), says(504), says(504), answers_series(series("1"))) as server:
        one = client(server)
        assert power(one)
        assert one.answered() == (1.0, None)
        assert len(server.ranges()) == 5


def test_foreign_series_are_left_out_and_counted() -> None:
    """Series and readings without the form of an answer do not hide the good ones."""
    bad_point = {
        "metric": {"UUID": "GPU-2"},
        "values": [[END.timestamp(), 10**400], 5, [1e300, "1"]],
    }
    with faulty_server(
        answers_series(series("1"), 7, {"metric": [], "values": []}, {"metric": {}}, bad_point)
    ) as server:
        one = client(server)
        assert [found["metric"]["UUID"] for found in power(one)] == ["GPU-1"]
        assert one.take_warnings() == (
            "3 series without labels and values left out",
            "3 readings without a time in the range and a value left out",
        )


@pytest.mark.parametrize("kind", ["vector", "scalar", "string"])
def test_another_type_of_result_is_unexpected(kind: str) -> None:
    """A vector, scalar or string where a matrix was asked for is no empty answer."""
    result: list[Any] = [END.timestamp(), "1"]
    body = [{"metric": {}, "value": result}] if kind == "vector" else result
    with faulty_server(answers_series(*body, kind=kind)) as server:
        one = client(server)
        assert power(one) == []
        with pytest.raises(UnexpectedAnswerError, match="matrix"):
            one.answered()


def test_warnings_and_infos_are_told_once_and_bounded() -> None:
    """A partial answer says so; a flood of warnings fills no report."""
    many = [f"shard {place} down" for place in range(1000)]
    with faulty_server(answers_series(series("1"), warnings=many, infos=["slow", 5])) as server:
        one = client(server)
        power(one)
        power(one)
        told = one.take_warnings()
        assert told[0] == "shard 0 down"
        assert len(told) == len(set(told)) == 20


def test_a_hundred_thousand_series_are_read_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cardinality attack is an answer like any other."""
    flood = [series("1", board=f"GPU-{place:08x}") for place in range(100_000)]
    with faulty_server(answers_series(*flood)) as server:
        monkeypatch.setattr(session, "TIMEOUT_SECONDS", 30.0)
        one = client(server)
        began = time.monotonic()
        assert len(power(one)) == 100_000
        assert time.monotonic() - began < 20


def test_readings_that_are_no_numbers_are_dropped_and_counted() -> None:
    """Words, null and NaN reach no sample; the report counts them by reason."""
    values: list[Any] = ["100", "abc", None, "NaN", "100"]
    with faulty_server(answers_series(series(*values))) as server:
        options = PrometheusSettings(url=server.url)
        collector = PrometheusDcgmCollector(
            PrometheusClient(options), options, load_gpu_catalogue()
        )
        collected = collector.collect(Window(start=START, end=END))
    assert collected.samples["power_watts"].tolist() == [100.0, 100.0]
    assert dict(collected.report.dropped)["broken-value"] == 2
    assert sum(count for _reason, count in collected.report.dropped) == 3


@pytest.mark.parametrize(
    ("metric", "function"),
    [
        ("DCGM_FI_DEV_POWER_USAGE", "avg_over_time"),
        ("DCGM_FI_PROF_SM_ACTIVE", "avg_over_time"),
        ("DCGM_FI_DEV_FB_USED", "max_over_time"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "last_over_time"),
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "last_over_time"),
        ("something_else", "last_over_time"),
    ],
)
def test_a_step_is_represented_as_the_metric_asks(metric: str, function: str) -> None:
    """Gauges by their mean, memory by its largest, counters and limits by the last reading."""
    assert end_aligned(metric, metric, 60, 15.0) == f"{function}({metric}[59999ms])"
    assert end_aligned(metric, metric, 60, 60.0) == metric
    assert end_aligned(metric, metric, 60, None) == metric
