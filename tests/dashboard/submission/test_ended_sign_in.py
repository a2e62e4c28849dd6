"""New job in a tab whose sign-in ended elsewhere."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from beds.page_world import register_world
from streamlit.testing.v1 import AppTest

from data.settings.access import AccessSettings
from data.settings.all_settings import Settings
from data.store import open_store

PAGE = Path(__file__).parents[3] / "dashboard/web/new_job/new_job.py"
OIDC = AccessSettings(
    mode="oidc", oidc_metadata_url="https://idp.example/m", oidc_client_id="trimtab",
    oidc_client_secret="x" * 40, admins="ada",
    public_url="https://trimtab.example",
)  # fmt: skip


def test_a_press_after_the_sign_in_has_ended_is_no_error_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preview and Submit do nothing, and the page shows no defect: the frame says to sign in."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        register_world(store, Settings())
        app = AppTest.from_file(str(PAGE), default_timeout=60).run()
        app.selectbox(key="job-model").set_value("tinyllama-1.1b")
        app.text_input(key="job-name").set_value("mine")
        app.button[0].click().run()
        app.text_input(key="new-job-by").set_value("ada").run()
        late = app.button(key="new-job-preview")
        register_world(store, replace(Settings(), access=OIDC))
        monkeypatch.setattr("streamlit.context", SimpleNamespace(cookies={}, headers={}))
        late.click().run()
        callbacks = [entry for entry in app.exception if "_attempt" in "".join(entry.stack_trace)]
    assert callbacks == []
