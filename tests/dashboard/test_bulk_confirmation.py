"""What a person confirms for many findings at once."""

from pathlib import Path

from beds.page_world import register_world
from beds.stores import cycle
from factories import NOW, make_recommendation
from streamlit.testing.v1 import AppTest

from data.settings.all_settings import Settings
from data.store import open_store

COUNT = 12


def _page(wish: str) -> None:
    from factories import NOW

    from dashboard.decisions.decision_table import DECISIONS, WishKind
    from dashboard.web.access.identity import whole_world
    from dashboard.web.findings.decision_dialog import _summary

    stored = list(whole_world().store.reader.recommendations(now=NOW))
    refused = [(f"TT-{number}", "it is away") for number in range(12)]
    _summary(DECISIONS[WishKind(wish)], stored, refused)


def confirmation(wish: str) -> AppTest:
    """What is asked before a decision."""
    return AppTest.from_function(_page, default_timeout=60, kwargs={"wish": wish}).run()


def test_a_roll_back_shows_its_own_change(tmp_path: Path) -> None:
    """From what the change made to what was before it, and what is given up."""
    one = make_recommendation()
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        cycle(store, 0, one, at=NOW)
        register_world(store, Settings())
        text = {
            wish: "".join(entry.value.replace("\\", "") for entry in confirmation(wish).markdown)
            for wish in ("approve", "roll-back")
        }
    now, then = one.now.describe(), one.proposed.describe()
    assert f"{now} → {then}" in text["approve"]
    assert f"{then} → {now}" in text["roll-back"]
    assert "It gives up " in text["roll-back"]
    assert "saves" not in text["roll-back"]


def test_a_confirmation_lists_every_finding(tmp_path: Path) -> None:
    """None hides behind "and 4 more": who approves twelve has read twelve, and what is refused."""
    jobs = [f"search/job{number}-\u202ex" for number in range(COUNT)]
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        cycle(store, 0, *(make_recommendation(job_id=job) for job in jobs), at=NOW)
        register_world(store, Settings())
        app = confirmation("approve")
        told = [entry.value for entry in app.markdown]
        refused = [entry.value for entry in app.warning]
    assert not app.exception
    for job in jobs:
        name = job.partition("/")[2].replace("-\u202e", "\\-⟨202E⟩")
        assert sum(name in line for line in told) == 1, name
    assert len(refused) == COUNT
