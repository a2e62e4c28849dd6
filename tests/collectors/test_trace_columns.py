"""Columns of a trace that say nothing, or that lost digits of what they say, are told of."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collectors.trace.column_map import load_map
from collectors.trace.files import Trace
from data.base.clock import utc_now
from data.base.errors import SettingsError

MAP = """
[time]
column = "at"
[columns.job_id]
column = "job"
[columns.gpu_uuid]
column = "gpu"
[columns.utilization_ratio]
column = "util"
unit = "percent"
[columns.power_watts]
column = "power"
unit = "watts"
[constants]
node = "n1"
gpu_model = "H100-SXM5-80GB"
"""


def trace_of(folder: Path, mapping: str = MAP, **columns: object) -> Trace:
    """A Parquet file of 40 minutes of one board, with these columns instead of the usual ones."""
    usual = {
        "at": pd.date_range("2026-01-05T12:00:00Z", periods=40, freq="min"),
        "job": "team/a",
        "gpu": "GPU-1",
        "util": np.arange(20.0, 60.0),
        "power": np.arange(300.0, 340.0),
    }
    path, where = folder / "trace.parquet", folder / "map.toml"
    pd.DataFrame(usual | columns).to_parquet(path)
    where.write_text(mapping)
    return Trace(path, load_map(where), now=utc_now())


def job_ids(trace: Trace) -> set[str]:
    """The jobs of all samples."""
    return {job_id for piece in trace.pieces() for job_id in piece.samples["job_id"]}


@pytest.mark.parametrize("largest", [7.0, 2.0**31, 2.0**53 - 1])
def test_ids_of_a_column_with_gaps_are_whole(largest: float, tmp_path: Path) -> None:
    """Gaps make floating point of a column of integers; its ids stay those integers."""
    ids = np.where(np.arange(40) < 20, largest, np.nan)
    assert job_ids(trace_of(tmp_path, job=ids)) == {str(int(largest)), ""}


@pytest.mark.parametrize(("kind", "bits"), [(np.float64, 54), (np.float32, 25)])
def test_ids_that_lost_their_last_digits_are_refused(kind: type, bits: int, tmp_path: Path) -> None:
    """Beyond the digits of the type two ids are one number: jobs would be taken together."""
    with pytest.raises(SettingsError, match="last digits are lost"):
        job_ids(trace_of(tmp_path, job=np.full(40, 2.0**bits, dtype=kind)))


def test_columns_without_a_value_are_named(tmp_path: Path) -> None:
    """The map asks for them, and no row has any."""
    trace = trace_of(tmp_path, job=None, power=np.nan)
    assert job_ids(trace) == {""}
    assert trace.without_values() == ["job_id", "power_watts"]
    whole = trace_of(tmp_path)
    job_ids(whole)
    assert whole.without_values() == []


def test_a_header_of_any_length_makes_a_short_message(tmp_path: Path) -> None:
    """A file of JSON has a first line without end."""
    trace = trace_of(tmp_path)
    (tmp_path / "trace.parquet").write_text(",".join(f"column-{n}" for n in range(5_000)) + "\n1\n")
    with pytest.raises(SettingsError) as refused:
        job_ids(trace)
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize(("minutes", "apart"), [(1, False), (5, False), (10, True)])
def test_readings_too_far_apart_are_told_of(minutes: int, apart: bool, tmp_path: Path) -> None:
    """Between readings ten minutes apart nothing is known: hours and energy would be missing."""
    times = pd.date_range("2026-01-05T12:00:00Z", periods=20, freq=f"{minutes}min")
    boards = np.repeat(["GPU-1", "GPU-2"], 20)
    trace = trace_of(tmp_path, at=[*times, *times], gpu=boards)
    job_ids(trace)
    assert trace.mostly_apart is apart


@pytest.mark.parametrize(
    ("at", "assumed"),
    [
        (pd.date_range("2026-01-05T12:00:00Z", periods=40, freq="min"), False),
        (pd.date_range("2026-01-05T12:00:00", periods=40, freq="min"), True),
        ([f"2026-01-05T12:{minute:02}:00+01:00" for minute in range(40)], False),
        ([f"2026-01-05T12:{minute:02}:00" for minute in range(40)], True),
        ([f"2026-01-05T12:{minute:02}:00{'Z' * (minute > 0)}" for minute in range(40)], True),
    ],
)
def test_a_zone_is_assumed_only_where_a_time_names_none(
    at: object, assumed: bool, tmp_path: Path
) -> None:
    """Times with a zone of their own take none of the map."""
    mapping = MAP.replace('"at"\n', '"at"\ntimezone = "Europe/Berlin"\n', 1)
    *_pieces, last = trace_of(tmp_path, mapping, at=at).pieces()
    told = dict(last.jobs[0].assumed)
    assert told.pop("timezone", None) == ("Europe/Berlin" if assumed else None)
    assert told == {"node": "n1", "gpu_model": "H100-SXM5-80GB"}


@pytest.mark.parametrize("blanks", ["{}", " {}", "{}\t ", "  {} "])
def test_blanks_around_a_name_of_a_column_do_not_count(blanks: str, tmp_path: Path) -> None:
    """As nvidia-smi writes them after its commas; in the file as in the map, Parquet as CSV."""
    for written in ("file", "map"):
        trace = trace_of(
            tmp_path,
            MAP.replace('"util"', f'"{blanks.format("util")}"') if written == "map" else MAP,
        )
        path = tmp_path / "trace.parquet"
        frame = pd.read_parquet(path)
        if written == "file":
            frame = frame.rename(columns=blanks.format)
            frame.to_parquet(path)
        assert sum(len(piece.samples) for piece in trace.pieces()) == 40
        frame.to_csv(path, index=False)
        again = Trace(path, load_map(tmp_path / "map.toml"), now=utc_now())
        assert sum(len(piece.samples) for piece in again.pieces()) == 40


def test_names_that_differ_in_blanks_alone_are_refused(tmp_path: Path) -> None:
    """Which of the two columns is meant cannot be known."""
    with pytest.raises(SettingsError, match="'util' 2 times"):
        list(trace_of(tmp_path, **{" util": 5.0}).pieces())
