"""XID codes as exporters tell them: a gauge that holds the last error of a board."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.prometheus import backfill, running_prometheus

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.readings.exposition_text import read_dcgm_text, read_prometheus_json
from collectors.shared.collector import Window
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.sources import PrometheusSettings

AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
LABELS = {"gpu": "3", "UUID": "GPU-1", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "n1"}
TEXT = ",".join(f'{name}="{value}"' for name, value in LABELS.items())
USED = f"DCGM_FI_DEV_FB_USED{{{TEXT}}} 10\n"


def read(tmp_path: Path, text: str) -> Collected:
    """What a text gives."""
    path = tmp_path / "metrics.prom"
    path.write_text(text)
    return read_dcgm_text(path, AT, load_gpu_catalogue())


def answer(codes: list[int], *, step_seconds: int = 60, **labels: str) -> dict[str, Any]:
    """A Prometheus' answer: one board's codes, the last at AT, and one reading of memory."""

    def series(metric: str, values: list[int]) -> dict[str, Any]:
        first = AT - timedelta(seconds=step_seconds) * (len(values) - 1)
        times = [first.timestamp() + step_seconds * at for at in range(len(values))]
        points = [[at, str(value)] for at, value in zip(times, values, strict=True)]
        return {"metric": {"__name__": metric, **LABELS, **labels}, "values": points}

    result = [series("DCGM_FI_DEV_XID_ERRORS", codes), series("DCGM_FI_DEV_FB_USED", [10])]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def rows(collected: Collected) -> list[tuple[str, int, datetime, datetime]]:
    """Board, code, first and last time of what was collected."""
    names = ["gpu_uuid", "xid", "first_seen_at", "last_seen_at"]
    return [tuple(itertuple) for itertuple in collected.xids[names].itertuples(index=False)]


def read_answers(tmp_path: Path, *answers: dict[str, Any]) -> Collected:
    """What recorded answers give."""
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(list(answers)))
    return read_prometheus_json(path, load_gpu_catalogue())


@pytest.mark.parametrize("name", ["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"])
def test_a_board_shows_its_last_code(tmp_path: Path, name: str) -> None:
    """Under the name of every release, with node and number; no sample comes of it."""
    collected = read(tmp_path, USED + f"{name}{{{TEXT}}} 79\n")
    assert rows(collected) == [("GPU-1", 79, AT, AT)]
    assert collected.xids[["node", "gpu_index"]].iloc[0].tolist() == ["n1", "3"]
    assert len(collected.samples) == 1


def test_none_is_a_code_and_silence_is_not(tmp_path: Path) -> None:
    """0 says that there was no error; without the metric nothing is said."""
    assert rows(read(tmp_path, USED + f"DCGM_FI_DEV_XID_ERRORS{{{TEXT}}} 0\n"))[0][1] == 0
    assert rows(read(tmp_path, USED)) == []


@pytest.mark.parametrize("raw", ["9223372036854775794", "2147483632", "NaN", "-1"])
def test_what_is_no_code_is_dropped_and_counted(tmp_path: Path, raw: str) -> None:
    """Sentinels are no errors, and not 'none' either."""
    collected = read(tmp_path, USED + f"DCGM_FI_DEV_XID_ERRORS{{{TEXT}}} {raw}\n")
    assert rows(collected) == []
    assert sum(count for _, count in collected.report.dropped) == 1


def test_each_code_has_its_first_and_last_time(tmp_path: Path) -> None:
    """The gauge goes from none to 31 and on to 79, which stays."""
    collected = read_answers(tmp_path, answer([0, 0, 31, 79, 79, 79]))

    def before(minutes: int) -> datetime:
        return AT - timedelta(minutes=minutes)

    assert rows(collected) == [
        ("GPU-1", 0, before(5), before(4)),
        ("GPU-1", 31, before(3), before(3)),
        ("GPU-1", 79, before(2), AT),
    ]


def test_what_repeats_on_slices_and_replicas_is_one_board(tmp_path: Path) -> None:
    """The code is the board's, whatever instance or holder the series names."""
    slices = [answer([48], GPU_I_ID=str(number), GPU_I_PROFILE="3g.40gb") for number in (1, 2)]
    assert rows(read_answers(tmp_path, *slices, answer([48, 48]))) == [
        ("GPU-1", 48, AT - timedelta(minutes=1), AT)
    ]


@pytest.mark.prometheus
def test_codes_come_through_a_prometheus(tmp_path: Path) -> None:
    """A board without errors gets one and keeps showing it."""
    steps = [AT - timedelta(minutes=5) * step for step in reversed(range(13))]
    lines = ["# TYPE DCGM_FI_DEV_XID_ERRORS gauge"]
    lines += [
        f"DCGM_FI_DEV_XID_ERRORS{{{TEXT}}} {79 if at > AT - timedelta(minutes=30) else 0} "
        f"{at.timestamp():.0f}"
        for at in steps
    ]
    lines.append("# TYPE DCGM_FI_DEV_FB_USED gauge")
    lines += [f"DCGM_FI_DEV_FB_USED{{{TEXT}}} 10 {at.timestamp():.0f}" for at in steps]
    backfill("\n".join([*lines, "# EOF", ""]), tmp_path)
    with running_prometheus(tmp_path) as url:
        settings = PrometheusSettings(url=url, step_seconds=300)
        source = PrometheusDcgmCollector(PrometheusClient(settings), settings, load_gpu_catalogue())
        collected = source.collect(Window(start=steps[0] - timedelta(minutes=5), end=AT))
    assert rows(collected) == [
        ("GPU-1", 0, steps[0], AT - timedelta(minutes=30)),
        ("GPU-1", 79, AT - timedelta(minutes=25), AT),
    ]
