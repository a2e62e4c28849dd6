"""Boards of a model that the catalogue lacks are told wherever a person looks."""

import logging
import sys
from pathlib import Path

import pandas as pd
import pytest
from beds.faulty_server import answers_series, faulty_server
from beds.page_world import page_at, register_world
from factories import NOW, make_collected, make_job, make_samples

from collectors.shared.collector import Window
from dashboard.cycle.context import World
from dashboard.cycle.diagnosis import source_findings
from dashboard.cycle.run_cycle import run_cycle
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.sources import PrometheusSettings
from data.store import open_store

APP = Path(__file__).parents[2] / "dashboard/web/app.py"
SETTINGS = Settings(planning=PlanningSettings(slot_minutes=60, horizon_slots=24, budget_seconds=1))
SAID = "lacks GPU model 'Voodoo2', of which 3 are here"


class Fleet:
    """A source of one job on three boards of an unknown model, and one on a known board."""

    name = "recorded"

    def collect(self, _window: Window) -> Collected:
        """Return both."""
        jobs = (
            make_job("ml/job/old", gpu_count=3, gpu_model="Voodoo2"),
            make_job("ml/job/new", gpu_count=1, gpu_model="L4-24GB"),
        )
        samples = [
            make_samples(gpus=job.gpu_count, minutes=600, job_id=job.job_id).assign(
                gpu_model=job.gpu_model
            )
            for job in jobs
        ]
        samples[1]["gpu_uuid"] = "L4-" + samples[1]["gpu_uuid"]
        return make_collected(pd.concat(samples), jobs=jobs)


def test_a_cycle_and_the_pages_say_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, the source's report (Health, `trimtab sources`), Overview and beside the cost."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        world = World(
            settings=SETTINGS, store=store, collectors=(Fleet(),),
            catalogue=load_gpu_catalogue(), carbon=load_carbon_table().get("DEU"),
        )  # fmt: skip
        with caplog.at_level(logging.WARNING):
            outcome = run_cycle(world, now=NOW)
        assert SAID in caplog.text
        (report,) = outcome.reports
        (warning,) = report.warnings
        assert SAID in warning
        assert "[[catalogue.gpu_models]]" in warning
        # Streamlit puts the page in the place of `__main__`.
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        register_world(store, SETTINGS, clock=lambda: NOW)
        shown = {}
        for view in ("plan", "overview"):
            page = page_at(view).run()
            assert not page.exception
            shown[view] = [entry.value for entry in page.warning]
    for view, begin in (("plan", "Left out of these costs"), ("overview", "Unknown GPUs")):
        (told,) = [text for text in shown[view] if text.startswith(begin)]
        assert "of which 3 are" in told
        assert "no price and no estimate of power" in told
        assert "catalogue.gpu" in told


def test_the_doctor_names_the_model_the_number_of_boards_and_the_fix() -> None:
    """Of series that a Prometheus has now; a known model is no finding."""
    names = ["L4", "Voodoo2", "Voodoo2", "Voodoo2"]
    series = [
        {
            "metric": {
                "UUID": f"GPU-{number}", "Hostname": "n1", "gpu": str(number),
                "modelName": name if name == "Voodoo2" else f"NVIDIA {name}",
            },
            "values": [[NOW.timestamp(), "1"]],
        }
        for number, name in enumerate(names)
    ]  # fmt: skip
    with faulty_server(answers_series(*series), names=["DCGM_FI_DEV_GPU_UTIL"]) as server:
        settings = Settings(prometheus=PrometheusSettings(url=server.url))
        found = [entry for _source, entry in source_findings(settings, NOW)]
    (told,) = [entry for entry in found if entry[0] == "GPU models"]
    assert told[1] == "missing"
    assert SAID in told[2]
    assert "[[catalogue.gpu_models]]" in told[2]
