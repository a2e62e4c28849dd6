"""A contradicted counter is told on every door, and no change rests on it."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from streamlit.testing.v1 import AppTest

from benchmarks._drawn_boards import DrawnJob, write_answer
from collectors.readings.exposition_text import read_prometheus_json
from dashboard.cli import main
from dashboard.cycle.cycle_thread import CycleState
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.web.server.prometheus_metrics import OwnMetrics
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.store import open_store

STUCK = DrawnJob(
    number=1, kind="steady", fault="stuck engine", fields=("gpu_util", "engine", "power")
)
SOUND = DrawnJob(number=2, kind="loaded and idle", boards=2)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a job at work behind a stuck counter, and an idle one."""
    folder = tmp_path_factory.mktemp("contradictions")
    write_answer([STUCK, SOUND], folder / "answer.json")
    address = f"duckdb:///{folder / 'readings.db'}"
    with open_store(address) as store:
        store.keep(read_prometheus_json(folder / "answer.json", load_gpu_catalogue()))
    return address


def test_the_job_is_kept_and_told_why(url: str) -> None:
    """The sound job is recommended, the one behind the stuck counter is not."""
    with open_store(url) as store:
        end = store.reader.latest_sample_at()
        assert end is not None
        outcome = run_cycle(build_world(Settings(), store=store), now=end)
    assert {entry.job_id for entry in outcome.recommendations} == {SOUND.job_id}
    reason = outcome.kept[STUCK.job_id]
    assert "GR_ENGINE_ACTIVE of 1 board on node-1 showed 0 % beside GPU_UTIL" in reason
    assert "Restart the exporter" in reason


def test_doctor_names_board_counter_and_fix(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With the fix; of a store without readings it says that it does not know."""
    main(["--store", url, "doctor", "--format", "json"])
    told = capsys.readouterr().out
    assert "GR_ENGINE_ACTIVE of 1 board on node-1" in told
    assert "Restart the exporter" in told
    main(["--store", f"duckdb:///{tmp_path / 'empty.db'}", "doctor", "--format", "json"])
    assert "none is kept yet" in capsys.readouterr().out


def test_a_metric_counts_the_slots(url: str) -> None:
    """By node, board and counter."""
    with open_store(url) as store:
        end = store.reader.latest_sample_at()
        assert end is not None
        text = OwnMetrics(store.reader, CycleState, lambda: False).exposition(end).decode()
    (found,) = [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "trimtab_contradicted_counter_slots"
    ]
    assert found.labels["node"] == "node-1"
    assert found.labels["counter"] == "gr_engine_active"
    assert found.value > 200


def test_health_lists_the_boards(url: str) -> None:
    """A row a board and counter, with what it showed and what the others did."""

    def page(address: str) -> None:
        from dashboard.web.admin.contradiction_section import contradiction_section
        from data.base.clock import utc_now
        from data.store import open_store

        with open_store(address) as store:
            contradiction_section(store.reader, utc_now())

    shown = AppTest.from_function(page, kwargs={"address": url}).run(timeout=60)
    assert not shown.exception
    assert "On 1 GPU a counter shows" in shown.error[0].value
    (row,) = shown.dataframe[0].value.to_dict("records")
    assert (row["node"], row["counter"], row["showed (%)"]) == ("node-1", "GR_ENGINE_ACTIVE", 0.0)
    assert row["beside"].startswith("GPU_UTIL ")
