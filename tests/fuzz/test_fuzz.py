"""Ten thousand hostile answers and texts: read or refused by name, never a crash, never nonsense.

`python -m benchmarks.fuzz --full` reads ten times as many.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.faulty_server import POWER, faulty_server, says
from fuzz.hostile_bodies import hostile_bodies
from fuzz.hostile_texts import hostile_texts
from fuzz.read_cases import AT, KEY, Case, Read, read_body, read_cases, read_file, read_text

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.readings.exposition_text import read_dcgm_text, read_prometheus_json
from collectors.shared.collect import collect_all
from collectors.shared.collector import Window
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.fleet import SourceReport, SourceState
from data.settings.sources import PrometheusSettings
from data.store import open_store

CASES = 10_000
THROUGH_FILES = 100
THROUGH_A_SERVER = 40
SEED = 20_260_105
SOURCES = [
    pytest.param(hostile_bodies, read_body, id="answers"),
    pytest.param(hostile_texts, read_text, id="texts"),
]


def ran(samples: pd.DataFrame) -> Collected:
    """The samples as a source gives them."""
    report = SourceReport(
        source="fuzz",
        state=SourceState.RAN,
        reason="",
        samples=len(samples),
        dropped=(),
        completeness_ratio=None,
        warnings=(),
        window_start=AT - timedelta(hours=1),
        window_end=AT,
    )
    return Collected(batch_id="fuzz", samples=samples, report=report)


@pytest.mark.slow
@pytest.mark.slow_end
@pytest.mark.parametrize(("make", "read"), SOURCES)
def test_hostile_cases_are_read_or_refused_and_can_be_kept(
    make: Callable[..., Iterator[Case]], read: Read, tmp_path: Path
) -> None:
    """Every case ends in samples or in a named refusal; what became samples can be kept."""
    frames: list[pd.DataFrame] = []
    outcomes = read_cases(make(CASES, seed=SEED), read, frames.append)
    assert sum(outcome.cases for outcome in outcomes.values()) == CASES
    assert [fault for outcome in outcomes.values() for fault in outcome.uncaught] == []
    assert sum(outcome.accepted for outcome in outcomes.values()) > CASES // 3
    assert sum(sum(outcome.dropped.values()) for outcome in outcomes.values()) > CASES // 10
    samples = pd.concat(frames, ignore_index=True)
    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as store:
        assert store.keep(ran(samples)) == len(samples.drop_duplicates(KEY))


def test_the_same_seed_gives_the_same_cases() -> None:
    """A case that fails can be had again."""
    for make in (hostile_bodies, hostile_texts):
        assert list(make(100, seed=3)) == list(make(100, seed=3))
        assert list(make(100, seed=3)) != list(make(100, seed=4))


def test_hostile_files_are_imported_or_refused(tmp_path: Path) -> None:
    """The whole way of an imported file, encodings included."""
    catalogue = load_gpu_catalogue()
    ends = {
        read_file(tmp_path / "range.json", body, lambda path: read_prometheus_json(path, catalogue))
        for _family, body in hostile_bodies(THROUGH_FILES, seed=SEED)
    } | {
        read_file(tmp_path / "dcgm.prom", text, lambda path: read_dcgm_text(path, AT, catalogue))
        for _family, text in hostile_texts(THROUGH_FILES, seed=SEED)
    }
    assert ends == {"", "UnexpectedAnswerError"}


def test_a_server_that_answers_hostile_bodies_is_a_report() -> None:
    """Through HTTP: each body, as the answer to every question, is a report and no crash."""
    cases = hostile_bodies(THROUGH_A_SERVER, seed=SEED)
    window = Window(start=AT - timedelta(minutes=15), end=AT)
    states = set()
    with faulty_server(says(200)) as server:
        settings = PrometheusSettings(url=server.url, step_seconds=300)
        collector = PrometheusDcgmCollector(
            PrometheusClient(settings), settings, load_gpu_catalogue()
        )
        for _family, body in cases:
            server.script[:] = [says(200, body.replace(b"DCGM_FI_DEV_FB_FREE", POWER.encode()))]
            (collected,) = collect_all([collector], window)
            states.add(collected.report.state)
    assert states == {SourceState.RAN, SourceState.FAILED}
