"""What no honest server gives: the wrong is dropped and counted, the good beside it stays."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from collectors.readings.dcgm_readings import DroppedReadings, samples_of
from collectors.readings.device_labels import readable_labels
from collectors.readings.exposition_text import (
    answers_in,
    number_of,
    parse_answer,
    parse_exposition,
    read_prometheus_json,
)
from data.base.errors import UnexpectedAnswerError
from data.catalogue.gpu_catalogue import load_gpu_catalogue

AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
NOW = AT.timestamp()
POWER = "DCGM_FI_DEV_POWER_USAGE"


def answer(*points: Any, **labels: Any) -> dict[str, Any]:
    """An answer of one series of power."""
    metric = {"__name__": POWER, "UUID": "GPU-1"} | labels
    result = [{"metric": metric, "values": list(points)}]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def read(document: Any) -> tuple[list[float], dict[str, int]]:
    """The powers that were kept, and what was dropped."""
    dropped = DroppedReadings()
    samples = samples_of(parse_answer(document, dropped), load_gpu_catalogue(), dropped)
    return samples["power_watts"].tolist(), dict(dropped.as_pairs())


@pytest.mark.parametrize("at", [0, -1, -1e18, 1e300, 2**63, 1767613800000, float("nan")])
def test_a_time_that_no_reading_has_is_dropped(at: float) -> None:
    """1970, before it, ms for s, and what overflows every calendar; the good reading stays."""
    assert read(answer([at, "1"], [NOW, "100"])) == ([100.0], {"broken-time": 1})


@pytest.mark.parametrize(
    "raw", ["1_000", "١٢", "abc", "", "0x1f", "9" * 5 + ",1", None, True, [], {}, 10**400]
)
def test_what_python_but_not_prometheus_calls_a_number_is_none(raw: object) -> None:
    """Underscores, digits of other scripts, booleans and endless numbers are no readings."""
    with pytest.raises(ValueError, match=r"number|convert"):
        number_of(raw)
    assert read(answer([NOW, raw], [NOW + 60, "100"])) == ([100.0], {"broken-value": 1})


@pytest.mark.parametrize("raw", ["100", "1e2", "+100", " 100 ", 100, 100.0])
def test_numbers_in_every_notation_are_read(raw: object) -> None:
    """Prometheus writes text; some servers write numbers."""
    assert number_of(raw) == 100.0


@pytest.mark.parametrize("point", [None, 5, "12", [], [NOW], [NOW, "1", "2"], {"0": NOW}])
def test_points_without_their_form_are_counted(point: object) -> None:
    """A point is a list of a time and a value."""
    assert read(answer(point, [NOW, "100"])) == ([100.0], {"broken-value": 1})


@pytest.mark.parametrize(
    "result",
    [7, None, "x", [], {"metric": 5}, {"metric": ["UUID"]}, {"metric": {"__name__": ["a"]}}],
)
def test_series_without_their_form_are_counted(result: object) -> None:
    """A foreign item among the series hides none of the others."""
    document = answer([NOW, "100"])
    document["data"]["result"].append(result)
    assert read(document) == ([100.0], {"broken-series": 1})


@pytest.mark.parametrize("values", [5, "abc", {"a": 1}, True])
def test_values_that_are_no_list_are_counted(values: object) -> None:
    """Nothing is read from text or objects where points belong."""
    document = answer()
    document["data"]["result"][0]["values"] = values
    assert read(document) == ([], {"broken-value": 1})


@pytest.mark.parametrize("label", [5, None, ["GPU-1"], {"a": "b"}])
def test_labels_that_are_no_names_are_counted(label: object) -> None:
    """A label of another type names no board."""
    assert read(answer([NOW, "1"], UUID=label)) == ([], {"broken-label": 1})
    assert read(answer([NOW, "1"], pod=label)) == ([], {"broken-label": 1})


@pytest.mark.parametrize("name", ["pod", "hpc_job", "node", "modelName", "GPU_I_PROFILE", "else"])
@pytest.mark.parametrize("length", [1025, 1_000_000])
def test_a_label_that_is_too_long_is_unknown_and_its_board_stays(name: str, length: int) -> None:
    """The label is counted; the reading stays, without a holder where the label named it."""
    assert read(answer([NOW, "1"], **{name: "x" * length})) == ([1.0], {"long-label": 1})


def test_a_board_whose_uuid_is_too_long_is_counted() -> None:
    """Without its UUID a board is none."""
    found = read(answer([NOW, "1"], UUID="x" * 1025))
    assert found == ([], {"long-label": 1, "no-uuid": 1})


def test_half_characters_and_nul_become_replacements() -> None:
    """What JSON allows and no store takes is replaced, the rest of the text stays."""
    found = readable_labels({"pod": "a\ud800b", "node": "n\0"})
    assert found == ({"pod": "a?b", "node": "n\ufffd"}, 0)
    document = json.loads(json.dumps(answer([NOW, "1"], pod="tr\ud800in\0", namespace="ü")))
    samples = samples_of(
        parse_answer(document, DroppedReadings()), load_gpu_catalogue(), DroppedReadings()
    )
    assert samples["job_id"].tolist() == ["ü/tr?in\ufffd"]


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([], "a list"),
        (None, "a NoneType"),
        ({}, "an empty object"),
        ({"a" * 500: 1}, "an object of aaa"),
        ({"status": "error", "error": "too many\nsamples"}, "the error too many samples"),
        ({"data": {"resultType": "scalar", "result": [1, "2"]}}, "an object of data"),
        ({"data": {"resultType": ["matrix"], "result": []}}, "an object of data"),
        ({"data": {"resultType": "matrix", "result": {"a": 1}}}, "an object of data"),
    ],
)
def test_another_document_is_refused_in_short(document: Any, told: str) -> None:
    """The message says what came instead, in a line."""
    with pytest.raises(UnexpectedAnswerError, match=told) as caught:
        list(parse_answer(document, DroppedReadings()))
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"data": ' + "9" * 5_000 + "}", "a number that is too long"),
        ('{"data"', "no JSON: .* in line 1"),
        ("", "no JSON"),
    ],
)
@pytest.mark.usefixtures("no_garbage")
def test_json_that_cannot_be_read_is_refused(text: str, told: str, tmp_path: Path) -> None:
    """Depth and length have limits in Python itself."""
    with pytest.raises(UnexpectedAnswerError, match=f"the body .*{told}"):
        answers_in(text, "the body")
    path = tmp_path / "range.json"
    path.write_text(text)
    with pytest.raises(UnexpectedAnswerError, match=rf"range\.json .*{told}"):
        read_prometheus_json(path, load_gpu_catalogue())


@pytest.mark.parametrize("space", [" ", "\t", "\r", "\x0b"])
def test_a_line_of_spaces_takes_no_time(space: str) -> None:
    """A quarter of a million spaces in a line end in a count, not in hours of matching."""
    many = space * 250_000
    text = (
        f'a{many}b c d\n{POWER}{many}{{UUID="GPU-1"{many}}}{many}1 2 3{many}x\n{POWER}{many}' + "{"
    )
    dropped = DroppedReadings()
    began = time.monotonic()
    assert list(parse_exposition(text, AT, dropped)) == []
    assert time.monotonic() - began < 2
    assert dropped.as_pairs() == (("broken-line", 2), ("no-number", 1))


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_only_a_line_feed_ends_a_line(separator: str) -> None:
    """Other separators of lines are characters of a label."""
    dropped = DroppedReadings()
    text = f'{POWER}{{UUID="GPU-1",pod="a{separator}b"}} 1\r\n'
    (found,) = parse_exposition(text, AT, dropped)
    assert found.labels["pod"] == f"a{separator}b"
    assert dropped.as_pairs() == ()
