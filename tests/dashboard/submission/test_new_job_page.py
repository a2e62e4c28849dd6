"""The New job page on a real Slurm: what it previews it sends, once."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.page_world import register_world
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode
from streamlit.testing.v1 import AppTest

from data.settings.all_settings import Settings
from data.settings.sources import SlurmSettings
from data.settings.submission import SubmitSettings
from data.store import Store, open_store

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
PAGE = Path(__file__).parents[3] / "dashboard/web/new_job/new_job.py"
NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=4, features="h100"),
    BedNode(name="c1", features="cpu"),
)


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """One node of four H100."""
    with running_slurm(nodes=NODES) as running:
        yield running


@pytest.fixture
def page(
    bed: SlurmBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[AppTest, Store]]:
    """The page of a server whose submission is switched on, and its store.

    Streamlit puts the page in the place of `__main__`, where processes of later tests would
    look for their start: it is put back.
    """
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    settings = Settings(
        slurm=SlurmSettings(
            mode="commands", conf_file=str(bed.conf), gpu_models="h100=H100-SXM5-80GB"
        ),
        submit=SubmitSettings(enabled=True, max_gpus=4, allow_slurm_operator=True),
    )
    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as store:
        register_world(store, settings)
        yield AppTest.from_file(str(PAGE), default_timeout=60), store


def describe(app: AppTest, name: str) -> None:
    """Fill the form as ada would, and have the plans shown."""
    app.run()
    app.selectbox(key="job-model").set_value("tinyllama-1.1b")
    app.text_input(key="job-name").set_value(name)
    app.button[0].click().run()
    assert app.button(key="new-job-submit").disabled
    app.text_input(key="new-job-by").set_value("ada").run()


def script_of(app: AppTest) -> str:
    """The batch script that the page shows."""
    (shown,) = [entry.value for entry in app.code if entry.value.startswith("#!/bin/bash")]
    return str(shown)


def test_what_is_previewed_is_sent_once(bed: SlurmBed, page: tuple[AppTest, Store]) -> None:
    """Form, preview, submit: Slurm has the job, the store the very text of the preview."""
    app, store = page
    describe(app, "by-page")
    app.button(key="new-job-preview").click().run()
    shown = script_of(app)
    assert "#SBATCH --gres=gpu:h100:" in shown
    assert store.reader.submissions() == ()
    app.button(key="new-job-submit").click().run()
    assert not app.exception
    (kept,) = store.reader.submissions()
    assert (kept.latest.manifest.rstrip("\n"), kept.submitted_by) == (shown, "ada")
    number = kept.latest.job_id.removeprefix("slurm:")
    assert bed.run("squeue", "-h", "-n", "by-page", "-t", "all", "-o", "%i") == number
    assert any("Submitted" in entry.value for entry in app.success)
    assert app.button(key="new-job-submit").disabled


def test_a_press_that_comes_twice_sends_once(bed: SlurmBed, page: tuple[AppTest, Store]) -> None:
    """The button is off after the first; a second press that is under way finds nothing to send."""
    app, store = page
    describe(app, "pressed-twice")
    app.button(key="new-job-preview").click().run()
    app.button(key="new-job-submit").click().run()
    late = app.button(key="new-job-submit")
    assert late.disabled
    late.proto.disabled = False
    late.click().run()
    assert not app.exception
    assert any("Submitted" in entry.value for entry in app.success)
    assert len(store.reader.submissions()) == 1
    listed = bed.run("squeue", "-h", "-n", "pressed-twice", "-t", "all", "-o", "%i")
    assert len(listed.split()) == 1


def test_a_press_with_a_new_preview_sends_nothing(page: tuple[AppTest, Store]) -> None:
    """Preview and Submit in one request: the script that would go was never shown."""
    app, store = page
    describe(app, "unseen")
    app.button(key="new-job-preview").click().run()
    app.button(key="new-job-preview").click()
    app.button(key="new-job-submit").click()
    app.run()
    assert any("Nothing was sent" in entry.value for entry in app.error)
    assert store.reader.submissions() == ()
    assert not app.button(key="new-job-submit").disabled
    app.button(key="new-job-submit").click().run()
    assert len(store.reader.submissions()) == 1


def test_a_press_is_carried_out_before_the_page_is_drawn(page: tuple[AppTest, Store]) -> None:
    """The job is sent though the run that the press asked for does not reach the button."""
    app, store = page
    describe(app, "page-left")
    app.button(key="new-job-preview").click().run()
    app.session_state["new-job-asked"] = None
    app.button(key="new-job-submit").click().run()
    assert [entry.key for entry in app.button if entry.key == "new-job-submit"] == []
    assert [submission.name for submission in store.reader.submissions()] == ["page-left"]
