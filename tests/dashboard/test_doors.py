"""A hundred questions by four doors: command line with and without a server, API, assistants.

Figures of pages are compared with the API's in `test_pages_as_a_door.py`. Every sixth question is
asked in every run, all of them at the slow end.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from beds.api_clients import LOCAL, clients
from beds.demo_store import demo_day
from beds.held_store import held
from beds.same_figures import differences
from starlette.testclient import TestClient

from dashboard.cli import main
from data.records.actions import Action
from data.store import open_store

GROUPS = ("tenant", "namespace", "owner", "job", "model", "node", "fleet")
STATED = ("tenant", "application", "owner", "job", "model", "state", "board")
SORTS = ("urgent", "saving", "number", "seen")
STATES = ("open", "dismissed", "snoozed", "approved", "applied", "resolved")
RANGE = ("2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z")
PAGED = ("findings", "jobs", "applications", "gpus", "nodes", "sources", "urgent", "audit",
         "savings", "serving")  # fmt: skip
COMMANDS: tuple[str, ...] = (
    *("jobs", "gpus", "nodes", "sources", "urgent", "memory", "plan", "audit list", "savings"),
    "findings idle",
    *(f"forecast --by {by}" for by in ("job", "group")),
    "jobs --by application",
    *(f"statement --by {by}" for by in STATED),
    *(f"statement --by tenant --every {every}" for every in ("hour", "day", "week", "month")),
    *(f"statement --by {by} --from {{0}} --to {{1}}" for by in STATED),
    *(f"savings --by {by}" for by in ("finding", "day", "namespace")),
    *(f"energy --by {by}" for by in (*GROUPS, "hour", "day", "week")),
    *(f"energy --by {by} --every {every}" for by in GROUPS for every in ("hour", "day", "week")),
    *(f"energy --by {by} --from {{0}} --to {{1}}" for by in GROUPS),
    *(f"findings list --sort {sort}" for sort in SORTS),
    *(f"findings list --kind {kind}" for kind in Action),
    *(f"findings list --risk {risk}" for risk in ("low", "medium", "high")),
    *(f"findings list --state {state}" for state in STATES),
    *(f"findings list --team {team} --sort {sort}" for team in ("search", "vision", "nobody")
      for sort in SORTS),
    *(f"findings show TT-{number}" for number in (1, 2, 3, 4)),
    *(f"estimate {model} --batch 8 --seq {seq}" for model in ("llama3-8b", "tinyllama-1.1b")
      for seq in (512, 2048)),
)  # fmt: skip
"""What an assistant can ask too."""
ALSO: tuple[str, ...] = (
    "report weekly", "report weekly --last-week", "report weekly --now {0}", "findings list --all",
    "energy --by account", "statement --by tenant,model", "statement --budgets",
    "serving services",
)  # fmt: skip
"""What its tools do not ask."""
_NAMES = {"findings idle": "idle", "audit list": "audit", "forecast": "forecasts",
          "report weekly": "reports/weekly", "findings list": "findings",
          "serving services": "serving"}  # fmt: skip
_TOOLS = {"findings list": "findings", "findings show": "finding", "audit list": "record",
          "findings idle": "idle_gpus", "forecast": "forecasts",
          "estimate": "estimate_memory"}  # fmt: skip


def parts(question: str) -> tuple[str, list[str], dict[str, Any]]:
    """The command of a question, what it is about, and its options."""
    before, *options = question.format(*RANGE).split(" --")
    words = before.split()
    two = ("findings", "audit", "report", "serving")
    length = 2 if words[0] in two else 1
    given = {
        name: value or "true" for name, _, value in (option.partition(" ") for option in options)
    }
    return " ".join(words[:length]), words[length:], given


def by_api(client: TestClient, question: str) -> Any:
    """What the API says, in the shape of the command."""
    command, about, given = parts(question)
    path = _NAMES.get(command, command)
    if command == "report weekly":
        names = {"now": "to", "last-week": "last_week"}
        given = {names[name]: value for name, value in given.items()}
    elif command == "findings show":
        path = f"findings/{about[0]}"
    elif command == "estimate":
        given["model"] = about[0]
    elif command == "savings" and given:
        path = "savings/to-date"
    elif command == "jobs" and given:
        path, given = "applications", {}
    if path in PAGED:
        given["limit"] = "1000"
    answer = client.get(f"/api/v1/{path}", params=given)
    assert answer.status_code == 200, (question, answer.text)
    found = answer.json()
    if command == "findings show":
        return found["finding"] | {name: found[name] for name in ("record", "change")}
    return timeless(question, found["items"]) if path in PAGED else found


def by_tool(client: TestClient, question: str) -> Any:
    """What an assistant is told: all of it, or the first rows."""
    command, about, given = parts(question)
    names = {"from": "start", "to": "end"}
    arguments: dict[str, Any] = {names.get(name, name): value for name, value in given.items()}
    if command not in ("plan", "sources", "savings", "statement", "findings show", "estimate"):
        arguments["rows"] = 200
    if about:
        arguments["name" if command == "findings show" else "model"] = about[0]
    if command == "savings" and not given:
        arguments["by"] = "change"
    if command == "jobs" and arguments.pop("by", ""):
        command = "applications"
    body = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": _TOOLS.get(command, command), "arguments": arguments},
    }  # fmt: skip
    accept = {"Accept": "application/json, text/event-stream"}
    result = client.post("/mcp", json=body, headers=accept).json()["result"]
    assert not result.get("isError"), (question, result)
    found = result["structuredContent"]
    if isinstance(found["answer"], list):
        return {"rows": timeless(question, found["answer"]), "total": found["total"]}
    return found["answer"]


def timeless(question: str, said: Any) -> Any:
    """What is said, without what the clock alone changes between two doors minutes apart."""
    if question != "serving services":
        return said
    moving = ("state", "required_replicas", "max_required_replicas", "reason")
    return [{name: row[name] for name in row if name not in moving} for row in said]


def by_command(url: str, question: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """What the command prints."""
    capsys.readouterr()
    words = question.format(*RANGE).split()
    assert main(["--quiet", "--store", url, *words, "--format", "json"]) in (0, 3)
    said = timeless(question, json.loads(capsys.readouterr().out))
    if question == "savings":
        return said["recommendations"]
    if question == "gpus":  # pages of a list need an order of one board only
        said.sort(key=lambda gpu: (gpu["gpu_uuid"], gpu["mig_instance"]))
    return said


def some(questions: tuple[str, ...]) -> list[Any]:
    """The questions, of which five of six wait for the slow end."""
    return [
        pytest.param(question, id=question, marks=[pytest.mark.slow_end] if number % 6 else [])
        for number, question in enumerate(questions)
    ]


@pytest.fixture(scope="module")
def filled(demo_time: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a store with a day of the simulated fleet and one cycle."""
    return demo_day(tmp_path_factory.mktemp("doors"))


class Doors:
    """Opens one door at a time to the same store: a DuckDB file has one process that holds it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: dict[str, dict[str, Any]] = {}

    def learn(self, questions: list[str]) -> None:
        """Ask the API and the tools all at once."""
        with open_store(self.url) as store, clients(store, LOCAL) as client:
            page = client(peer="127.0.0.1")
            for question in questions:
                self.answers[question] = {"API": by_api(page, question)}
                if question in COMMANDS:
                    self.answers[question]["assistant"] = by_tool(page, question)


@pytest.fixture(scope="module")
def doors(filled: str, request: pytest.FixtureRequest) -> Doors:
    """The answers of the API and of the tools to the questions of this run."""
    found = Doors(filled)
    asked = [
        item.callspec.params["question"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    found.learn(list(dict.fromkeys(asked)))
    return found


def test_there_are_a_hundred() -> None:
    """No two are the same."""
    assert len(set(COMMANDS)) == len(COMMANDS) >= 100


@pytest.mark.parametrize("question", some((*COMMANDS, *ALSO)))
def test_every_door_says_the_same(
    question: str, doors: Doors, capsys: pytest.CaptureFixture[str]
) -> None:
    """Row by row and figure by figure; an assistant is given the first rows of a long list."""
    said = by_command(doors.url, question, capsys)
    assert differences(doors.answers[question]["API"], said) == []
    if question in COMMANDS:
        told = doors.answers[question]["assistant"]
        whole = {"rows": said[:200], "total": len(said)} if isinstance(said, list) else said
        if question == "savings":
            told = told["recommendations"] if isinstance(told, dict) else told
            whole = said
        assert differences(told, whole) == []


@pytest.fixture(scope="module")
def holder(filled: str) -> Iterator[str]:
    """The store in the hands of another process."""
    with held(filled):
        yield filled


@pytest.mark.parametrize("question", some((*COMMANDS, *ALSO)))
def test_a_command_beside_a_server_says_the_same(
    question: str, doors: Doors, holder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with the file to itself."""
    said = by_command(holder, question, capsys)
    assert differences(doors.answers[question]["API"], said) == []


def test_the_table_of_services_has_what_a_person_asks_for(
    filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dozen columns in a terminal; all of them in a file, but the slots ahead."""
    headings = {}
    for form in ("table", "csv"):
        assert main(["--quiet", "--store", filled, "serving", "services", "--format", form]) == 0
        headings[form] = capsys.readouterr().out.splitlines()[0].replace(",", " ").split()
    assert len(headings["table"]) == 12
    assert set(headings["table"]) < set(headings["csv"])
    assert {"wait_seconds", "required_replicas", "state"} < set(headings["table"])
    assert "slots" not in headings["csv"]
