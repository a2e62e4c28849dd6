"""Fifty questions by the command line and by the HTTP API: the same figures.

Commands beside a server and tools of assistants answer as commands do: `test_commands_while_held`
and `test_mcp` hold that.
"""

import json

import pytest
from beds.same_figures import differences
from starlette.testclient import TestClient

from dashboard.api.app import ApiWorld, build_api
from dashboard.api.callers import named
from dashboard.cli import main
from dashboard.decision_service import DecisionService
from data.clock import utc_now
from data.records.decisions import Action
from data.settings import Settings
from data.store import open_store

GROUPS = ("tenant", "namespace", "account", "owner", "job", "model", "node", "fleet")
SORTS = ("urgent", "saving", "number", "seen")
RANGE = ("2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z")
QUESTIONS: tuple[tuple[str, str], ...] = (
    *((name, name) for name in ("jobs", "gpus", "nodes", "sources", "urgent", "memory", "plan")),
    ("audit list", "audit"),
    ("savings", "savings"),
    ("recommendations idle", "idle"),
    *((f"forecast --by {by}", f"forecasts?by={by}") for by in ("job", "group")),
    *((f"energy --by {by}", f"energy?by={by}") for by in (*GROUPS, "hour", "day", "week")),
    *(
        (f"energy --by {by} --every {every}", f"energy?by={by}&every={every}")
        for by in ("tenant", "job")
        for every in ("hour", "day", "week")
    ),
    ("report weekly", "reports/weekly"),
    ("report weekly --last-week", "reports/weekly?last_week=true"),
    ("report weekly --now {0}", "reports/weekly?to={0}"),
    ("energy --from {0} --to {1}", "energy?from={0}&to={1}"),
    *((f"findings list --sort {sort}", f"findings?sort={sort}") for sort in SORTS),
    *((f"findings list --kind {kind}", f"findings?kind={kind}") for kind in Action),
    *((f"findings list --risk {risk}", f"findings?risk={risk}") for risk in ("low", "high")),
    ("findings list --state open", "findings?state=open"),
    ("findings list --team search", "findings?team=search"),
    ("findings list --all", "findings?all=true"),
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a store with a day of the simulated fleet and one cycle."""
    url = f"duckdb:///{tmp_path_factory.mktemp('doors')}/demo.duckdb"
    assert main(["--quiet", "--store", url, "demo", "--once", "--days", "1"]) == 0
    return url


@pytest.fixture(scope="module")
def answers(filled: str) -> dict[str, object]:
    """What the API says to each question; of a list its rows."""
    found = {}
    with open_store(filled) as store:
        service = DecisionService(store=store, settings=Settings)
        world = ApiWorld(
            reader=store.reader_for_pages(), service=service, clock=utc_now,
            caller=lambda request: named(request, "local"),
        )  # fmt: skip
        client = TestClient(build_api(world))
        for _command, address in QUESTIONS:
            path, _, query = address.format(*RANGE).partition("?")
            whole = path not in ("plan", "idle", "forecasts", "memory", "energy", "reports/weekly")
            answer = client.get(f"/{path}?{query}{'&limit=1000' if whole else ''}")
            assert answer.status_code == 200, (address, answer.text)
            found[address] = answer.json()["items"] if whole else answer.json()
    return found


def test_there_are_fifty() -> None:
    """No two are the same."""
    assert len(set(QUESTIONS)) == len(QUESTIONS) >= 50


@pytest.mark.parametrize(("command", "address"), QUESTIONS, ids=[one[0] for one in QUESTIONS])
def test_both_doors_say_the_same(
    command: str,
    address: str,
    filled: str,
    answers: dict[str, object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Row by row and figure by figure."""
    words = command.format(*RANGE).split()
    code = main(["--quiet", "--store", filled, *words, "--format", "json"])
    assert code in (0, 3)
    said = json.loads(capsys.readouterr().out)
    told = answers[address]
    if command == "savings":
        said = said["recommendations"]
    if command == "gpus":  # pages of a list need an order of one board only
        said.sort(key=lambda gpu: (gpu["gpu_uuid"], gpu["mig_instance"]))
    assert differences(told, said) == []
