"""`--server URL --token-file FILE`: as on the store, with the rights of the token."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
import uvicorn
from beds.api_clients import PROXY, guarded_api, two_owners
from beds.faulty_server import faulty_server, says
from beds.same_figures import differences
from command_kinds import READS
from factories import make_collected, make_job, make_samples

from dashboard.cli import main
from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.records.commands import Person
from data.settings.access import AccessSettings
from data.settings.all_settings import Settings
from data.settings.statements import Budget, StatementSettings
from data.store import Store, open_store

EXAMPLE = Path(__file__).parents[2] / "docs/examples/idle_jobs.py"
ACCESS: AccessSettings = replace(PROXY, allowed_hosts="127.0.0.1")
SAME = (
    "jobs", "jobs --by application", "jobs --idle", "gpus", "nodes", "queue", "quotas", "capacity",
    "heat",
    "sources", "urgent", "audit list", "samples --gpu GPU-0000",
    "samples --slots --job search/chat",
    "findings list", "findings list --all --sort number", "findings list --state open",
    "findings list --team search", "findings list --search chat --sort energy",
    "findings list --owner nobody", "findings list --model nothing --cluster here --account x",
    "findings list --kind reclaim", "findings list --risk high",
    "findings show TT-1", "findings show tt-2",
    "findings list --namespace search --since 2026-01-01T00:00:00Z", "findings list --node x",
    "findings list --limit 1", "jobs --namespace search", "jobs --owner vision --limit 1",
    "jobs --model nothing", "jobs --since 2100-01-01T00:00:00Z",
    "gpus --namespace search --sort=-node", "gpus --cluster nowhere", "nodes --node x",
    "plan", "plan --by node", "memory", "forecast", "forecast --by group",
    "forecast --by workload", "savings --by finding", "serving services",
)  # fmt: skip
DOCUMENTS = (
    "forecast --points",
    "findings idle", "energy", "score",
    "energy --by job --every day", "statement", "statement --by owner,model --budgets",
    "report weekly --now 2026-11-20T00:00:00Z",
)  # fmt: skip
ROLES = {"ann": "approver", "vera": "viewer", "search": "owner"}
Said = tuple[int, str, str]


class Host:
    """A store with two findings and a server on it; `alone` names a copy without a server."""

    def __init__(self, folder: Path, store: Store, url: str, alone: str) -> None:
        self.folder, self.store, self.url, self.alone = folder, store, url, alone

    def words(self, person: str, role: str) -> list[str]:
        """What names the server, with a token of a person."""
        service = DecisionService(
            store=self.store, settings=lambda: replace(Settings(), access=ACCESS)
        )
        admin, day = Person(name="alex", via="proxy"), timedelta(days=1)
        _, text = service.make_token(holder=person, role=role, lasts=day, person=admin)
        path = self.folder / f"{person}.token"
        path.write_text(f"{text}\n", encoding="utf-8")
        return ["--server", self.url, "--token-file", str(path)]


@contextmanager
def hosting(folder: Path, bills: StatementSettings | None = None) -> Iterator[Host]:
    """A real server on 127.0.0.1, behind the guards of the pages."""
    with two_owners(folder):
        pass
    alone = folder / "alone.duckdb"
    shutil.copy(folder / "t.duckdb", alone)
    with open_store(f"duckdb:///{folder}/t.duckdb") as store, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        apply = replace(Settings().apply, directory=str(folder / "changes"))
        own = Settings(apply=apply, statement=bills or StatementSettings())
        app = guarded_api(store, ACCESS, settings=own)
        server = uvicorn.Server(
            uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        port = listening.getsockname()[1]
        yield Host(folder, store, f"http://127.0.0.1:{port}", f"duckdb:///{alone}")
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """For commands that only read."""
    with hosting(tmp_path_factory.mktemp("host")) as made:
        yield made


@pytest.fixture(scope="module")
def viewer(host: Host) -> list[str]:
    """The words that name the server, with the token of a viewer."""
    return host.words("vera", "viewer")


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> Said:
    """The exit code, stdout and stderr of a command."""
    code = main(["--quiet", *words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("form", ["table", "json", "csv"])
@pytest.mark.parametrize("question", SAME)
def test_a_list_is_the_same_by_either_way(
    question: str, form: str, host: Host, viewer: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte by byte as a table and CSV; in JSON a time may be written with Z."""
    if form == "csv" and "show" in question:
        form = "table"
    words = [*question.split(), "--format", form]
    there, here = (said([*way, *words], capsys) for way in (viewer, ["--store", host.alone]))
    if question == "audit list":
        assert there[0] == 0  # the token itself is in the record
        return
    assert there[0] == here[0]
    if form == "json":
        assert differences(json.loads(there[1]), json.loads(here[1])) == []
    else:
        assert there[1] == here[1]


@pytest.mark.parametrize("question", DOCUMENTS)
def test_a_document_is_the_same_by_either_way(
    question: str, host: Host, viewer: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON; for other forms the command says so."""
    words = question.split()
    ways = (viewer, ["--store", host.alone])
    there, here = (json.loads(said([*way, *words, "--format", "json"], capsys)[1]) for way in ways)
    assert differences(there, here) == []
    if question in ("forecast --points", "score"):  # rows, whoever has them
        return
    form = "md" if "report" in question else "table"
    code, out, error = said([*viewer, *words, "--format", form], capsys)
    assert (code, out, "Give --format json" in error) == (2, "", True)


def test_every_command_goes_to_the_server_or_says_so(
    viewer: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """None looks at a store of this host instead."""
    asked = {" ".join(question.split(" --")[0].split()[:2]) for question in (*SAME, *DOCUMENTS)}
    left = {*READS} - asked - {question.split(" --")[0] for question in (*SAME, *DOCUMENTS)}
    assert len(left) > 5
    for command in sorted({*left, "cycle", "collect", "apply work"}):
        words = [*command.split(), *READS.get(command, "").split()]
        code, out, error = said([*viewer, *words], capsys)
        assert (code, out, "not to be had with --server" in error) == (2, "", True), command


def test_decisions_are_made_by_whom_the_token_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With their rights: whatever --by says; a refusal has the server's words."""
    with hosting(tmp_path) as host:
        words = {name: host.words(name, role) for name, role in ROLES.items()}

        def run(person: str, command: str) -> Said:
            return said([*words[person], *command.split()], capsys)

        code, out, error = run("ann", "findings snooze TT-2 --by somebody --days 1")
        assert (code, out[:21], "The token is of ann" in error) == (
            0,
            "TT-2 is not proposed ",
            True,
        )
        assert run("ann", "findings reopen TT-2 --by ann")[0] == 0
        code, out, error = run("ann", "findings approve TT-1 --by ann --comment fine")
        assert (code, out.split()[0], out.split()[-1], error) == (0, "approved", "ann", "")
        code, _, error = run("ann", "findings reopen TT-1 --by ann")
        assert (code, "is approved. Only what was snoozed" in error) == (1, True)
        code, _, error = run("vera", "findings dismiss TT-2 --by ann --reason not-now")
        assert (code, "vera" in error) == (1, True)
        assert run("ann", "findings dismiss TT-2 --by ann --reason not-now")[0] == 0
        assert "TT-9" in run("ann", "findings accept TT-9 --by ann")[2]
        code, out, _ = run("ann", "findings apply TT-1 --by ann")
        assert (code, "on the host of the server" in out) == (0, True)
        code, out, _ = run("search", "findings list --format json")
        assert [row["target"] for row in json.loads(out)] == ["search/chat"]
        said_of = [(entry.event, entry.actor) for entry in host.store.reader.audit()]
    assert [entry for entry in said_of if entry[0] != "token-made"] == [
        ("snoozed", "ann"), ("reopened", "ann"), ("approved", "ann"), ("dismissed", "ann"),
        ("rejected", "ann"), ("written", "ann"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--server http://127.0.0.1:1", "go together"),
        ("--token-file {0}", "go together"),
        ("--server http://gpu.example --token-file {0}", "no address that a token may be sent to"),
        ("--server ftp://gpu.example --token-file {0}", "no address"),
        ("--server https://u:p@gpu.example --token-file {0}", "no address"),
        ("--server https://gpu.example/x --token-file {0}", "no address"),
        ("--server http://127.0.0.1:1 --token-file {1}", "holds no token"),
        ("--server http://127.0.0.1:1 --token-file {0}.not", "cannot be read"),
        ("--server http://127.0.0.1:1 --token-file {0} --store duckdb:///x", "two stores"),
        ("--server http://127.0.0.1:1 --token-file {0}", "does not answer"),
    ],
)
def test_what_cannot_be_asked_is_named(
    words: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is sent, where it can be told."""
    token, empty = tmp_path / "token", tmp_path / "empty"
    token.write_text("trimtab_x\n")
    empty.write_text("\n")
    code, out, error = said([*words.format(token, empty).split(), "jobs"], capsys)
    assert (code in (1, 2), out, says in error) == (True, "", True)
    assert "trimtab_x" not in error


def test_a_token_goes_nowhere_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A redirect is no answer, and a wrong token has the server's words."""
    token = tmp_path / "token"
    token.write_text("trimtab_wrong\n")
    with faulty_server(says(302, b"", ("Location", "http://127.0.0.1:1/"))) as server:
        assert main(["--server", server.url, "--token-file", str(token), "jobs"]) == 1
        assert len(server.asked) == 1
    assert "answered 302" in capsys.readouterr().err
    with hosting(tmp_path) as host:
        assert main(["--server", host.url, "--token-file", str(token), "jobs"]) == 1
    assert "token" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_token_for_this_host_goes_through_no_proxy(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS it never leaves this host, whatever proxy the site names."""
    token = tmp_path / "token"
    token.write_text("trimtab_x\n")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with faulty_server(says(200)) as proxy, faulty_server(says(200)) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        url = server.url.replace("127.0.0.1", host)
        assert main(["--server", url, "--token-file", str(token), "jobs"]) == 1
        assert (len(proxy.asked), len(server.asked)) == (0, 1)


ROW = b'{"sequence": 1}'
ODD = {
    "no JSON": b"<html>sign in</html>", "nothing": b"", "a number": b"7", "a list": b"[]",
    "no items": b'{"total": 0}', "other items": b'{"items": 3, "total": 1, "next": null}',
    "other rows": b'{"items": [' + ROW + b'], "total": 1, "next": null}',
    "an odd cursor": b'{"items": [], "total": 1, "next": 7}',
    "an endless cursor": b'{"items": [], "total": 1, "next": "x"}',
    "no number": b'{"items": [NaN], "total": 1, "next": null}', "deep": b"[" * 100_000,
    "half a letter": b'{"items": ["\\ud800"], "total": 1, "next": null}',
}  # fmt: skip
ASKED = ("jobs", "findings list", "findings show TT-1", "audit list",
         "plan --format json", "samples --gpu GPU-0")  # fmt: skip


@pytest.mark.parametrize("words", ASKED)
def test_what_is_no_answer_of_the_api_is_refused_in_words(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another server, another version, or one that means harm: no traceback, no loop."""
    token = tmp_path / "token"
    token.write_text("trimtab_x\n")
    for name, body in ODD.items():
        with faulty_server(says(200, body)) as server:
            given = ["--server", server.url, "--token-file", str(token), *words.split()]
            code = main(given)
            asked = len(server.asked)
        _out, error = capsys.readouterr()
        assert (code, asked) == (1, 1), (name, error)
        assert "is no Trimtab of this version" in error, name


def test_an_endless_list_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cursor that was given before leads nowhere."""
    token = tmp_path / "token"
    token.write_text("trimtab_x\n")
    with hosting(tmp_path) as host:
        words = host.words("vera", "viewer")
        assert main([*words, "jobs", "--format", "json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    body = json.dumps({"items": [row], "total": 1, "next": "x"}).encode()
    with faulty_server(says(200, body)) as server:
        assert main(["--server", server.url, "--token-file", str(token), "jobs"]) == 1
        assert len(server.asked) == 2
    assert "is no Trimtab of this version" in capsys.readouterr().err


def rested(host: Host, job_id: str, at: datetime) -> None:
    """Keep two hours of a live job at rest up to a time."""
    job = make_job(job_id, source="prometheus", last_seen_at=at)
    frame = make_samples(job_id=job_id, end=at, minutes=120, utilization_ratio=0.0)
    collected = make_collected(frame, (job,))
    host.store.keep(replace(collected, report=replace(collected.report, source="prometheus")))


@pytest.mark.parametrize("case", ["as it is", "of another token", "old", "not reached"])
def test_the_example_prints_idle_jobs_or_nothing(tmp_path: Path, case: str) -> None:
    """It checks signature and age of what a real server answers."""
    with hosting(tmp_path) as host:
        token = Path(host.words("vera", "viewer")[-1]).read_text("utf-8").strip()
        rested(host, "lab/notebook-1", utc_now() - timedelta(hours=2 if case == "old" else 0))
        url = "http://127.0.0.1:9" if case == "not reached" else host.url
        code = EXAMPLE.read_text("utf-8")
        if case == "of another token":
            code = code.replace("hmac.new(token.encode()", "hmac.new(b'of another'")
        done = subprocess.run(
            [sys.executable, "-c", code, url, "--minutes", "60"],
            env=os.environ | {"TRIMTAB_TOKEN": token}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    expected = {"as it is": (0, "lab/notebook-1\n"), "old": (0, "")}
    assert (done.returncode, done.stdout) == expected.get(case, (1, "")), done.stderr
    assert bool(done.stderr) == (case not in expected)


@pytest.mark.parametrize(("budget", "code"), [(1e-6, 1), (1e6, 0)])
def test_the_example_of_bills_fails_where_a_budget_is_exceeded(
    tmp_path: Path, budget: float, code: int
) -> None:
    """Of a month that has nine whole days, and of one that holds its budget."""
    end = utc_now().replace(minute=0, second=0, microsecond=0)
    bills = StatementSettings(budgets=(Budget(tenant="lab", per_month=budget),))
    with hosting(tmp_path, bills) as host:
        token = Path(host.words("vera", "viewer")[-1]).read_text("utf-8").strip()
        times = pd.date_range(end=end, periods=288 * 10, freq="5min").as_unit("us")
        frame = make_samples(minutes=len(times), end=end, job_id="lab/a", gpu_uuid="GPU-of-lab")
        job = make_job("lab/a", namespace="lab")
        host.store.keep(make_collected(frame.assign(sampled_at=times), (job,)))
        done = subprocess.run(
            [sys.executable, EXAMPLE.with_name("bill.py"), host.url],
            env=os.environ | {"TRIMTAB_TOKEN": token}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("at work: ")
    assert ("lab: 100%, spent by 2" in done.stdout) == bool(code)
