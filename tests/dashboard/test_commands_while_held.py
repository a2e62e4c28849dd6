"""Commands while another process holds the DuckDB file: they answer as with the file alone."""

import argparse
import os
import shutil
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
from beds.demo_store import demo_day
from beds.held_store import held
from beds.stores import cycle
from command_kinds import DECIDES, NEEDS_THE_FILE, READS, WITHOUT_A_STORE
from factories import make_recommendation

from dashboard.cli import main
from dashboard.cli.parser.parser import build_parser
from data.base.clock import utc_now
from data.base.errors import StoreBusyError, StoreError
from data.settings.store import store_path
from data.store import open_store
from data.store.handles.remote_store import (
    BACKUP,
    ServedStore,
    StoreHolder,
    served_store,
    socket_path,
)


def commands(parser: argparse.ArgumentParser, before: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of the parser that has no commands below it."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield " ".join(before)
    for group in below:
        for name, command in group.choices.items():
            if not command.prog.endswith(f" {name}"):
                continue  # a former word leads to the same commands
            yield from commands(command, (*before, name))


def test_every_command_is_of_one_kind() -> None:
    """A new command is tried here, or it is said why not."""
    assert sorted(commands(build_parser())) == sorted(
        [*READS, *DECIDES, *NEEDS_THE_FILE, *WITHOUT_A_STORE]
    )


@pytest.fixture(scope="module")
def filled(demo_time: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a day of the simulated fleet and one cycle."""
    return demo_day(tmp_path_factory.mktemp("held"))


@pytest.fixture(scope="module")
def holder(filled: str) -> Iterator[str]:
    """A copy of that store in the hands of another process."""
    path = store_path(filled)
    folder = path.parent / "theirs"
    folder.mkdir()
    shutil.copy(path, folder / path.name)
    url = f"duckdb:///{folder / path.name}"
    with held(url):
        yield url


@pytest.mark.parametrize("command", sorted(READS))
def test_a_command_answers_the_same(
    command: str, filled: str, holder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stdout and stderr, and by its exit code; but for the folder and what is free there."""
    words = [*command.split(), *READS[command].split()]
    said = []
    for url in (filled, holder):
        code = main(["--quiet", "--store", url, *words])
        found = capsys.readouterr()
        folder = str(store_path(url).parent)
        said.append((code, found.out.replace(folder, ""), found.err.replace(folder, "")))
    (code, out, error), other = said
    if command == "doctor":
        out, other = _without_room(out), (other[0], _without_room(other[1]), other[2])
    assert (code, out, error) == other
    assert out or error


def _without_room(text: str) -> str:
    return "\n".join(line.partition(" samples")[0] for line in text.splitlines())


@pytest.mark.parametrize("command", ["cycle", "collect", "apply work"])
def test_what_needs_the_file_says_so(
    command: str, holder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the process."""
    assert main(["--store", holder, *command.split()]) == 1
    assert "is held by process" in capsys.readouterr().err


def test_decisions_are_made_by_the_holder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is in the record as if the command had had the file; so is each refusal's text."""
    url = _store_of(tmp_path / "trimtab.duckdb")

    def run(words: str) -> tuple[int, str, str]:
        code = main(["--store", url, *words.split()])
        return code, *capsys.readouterr()

    with held(url):
        assert run("findings snooze TT-1 --by ann --days 1")[1].startswith("TT-1 is not proposed")
        assert run("findings reopen TT-1 --by ann")[0] == 0
        code, out, _ = run("findings approve TT-1 --by Zoë --comment fine")
        assert (code, out.split()[0], out.split()[-1]) == (0, "approved", "Zoë")
        code, _, error = run("findings approve TT-1 --by ann")
        assert (code, "is approved. Only a proposed one" in error) == (1, True)
        code, _, error = run("findings approve TT-9 --by ann")
        assert (code, "no recommendation with the id 'TT-9'" in error) == (1, True)
        code, out, error = run("findings dismiss TT-1 --by ann --reason not-now")
        assert (code, out) == (0, "TT-1 is dismissed by ann: not-now\n")
        code, out, error = run("token make --for robot --by ann")
        assert (code, out[:8]) == (0, "trimtab_")
        code, out, _ = run(f"token revoke {error.split()[1]} --by ann")
        assert (code, "of robot lets nobody in" in out) == (0, True)
        assert run("token revoke nothing --by ann")[0] == 1
        code, _, error = run("acknowledge nothing --by ann")
        assert (code, "no alert has the key 'nothing'" in error) == (1, True)
    with open_store(url) as store:
        entries = [(entry.event, entry.actor) for entry in store.reader.audit()]
        assert store.reader.verify_audit() == ()
    assert entries == [
        ("snoozed", "ann"), ("reopened", "ann"), ("approved", "Zoë"),
        ("dismissed", "ann"), ("rejected", "ann"), ("token-made", "ann"),
        ("token-revoked", "ann"),
    ]  # fmt: skip


def _store_of(path: Path, *, findings: int = 1) -> str:
    """A store with so many findings, TT-1 the first, proposed now."""
    url = f"duckdb:///{path}"
    found = [make_recommendation(job_id=f"search/ranker-{number}") for number in range(findings)]
    with open_store(url) as store:
        cycle(store, 0, *found, at=utc_now())
    return url


def test_a_name_comes_whole(tmp_path: Path) -> None:
    """As with the file alone, blanks tidied; a name that is no text is refused."""
    names = ("Zoë", "a\nb", "50 %", "%41", "李")
    said = []
    for way in ("held", "alone"):
        folder = tmp_path / way
        folder.mkdir()
        url = _store_of(folder / "trimtab.duckdb", findings=len(names))
        with held(url) if way == "held" else nullcontext():
            for number, name in enumerate(names, start=1):
                words = ["--store", url, "findings", "approve", f"TT-{number}", "--by"]
                assert main([*words, "\udcff"]) == 1
                assert main([*words, name]) == 0
        with open_store(url) as store:
            said.append([entry.actor for entry in store.reader.audit()])
    assert said[0] == said[1]


def test_a_holder_that_does_not_answer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is halted holds the file as well."""
    url = _store_of(tmp_path / "trimtab.duckdb")
    monkeypatch.setattr("data.store.handles.remote_store._GREETING_SECONDS", 0.5)
    with held(url) as process:
        os.kill(process, signal.SIGSTOP)
        try:
            assert main(["--store", url, "findings", "list"]) == 1
        finally:
            os.kill(process, signal.SIGCONT)
    assert f"is held by process {process}" in capsys.readouterr().err


def test_a_holder_that_is_halted_at_a_backup_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup may take as long as it takes, but not from a process that does not work."""
    url = _store_of(tmp_path / "trimtab.duckdb")
    for name in ("_TIMEOUT_SECONDS", "_PROBE_AFTER_SECONDS"):
        monkeypatch.setattr(f"data.store.handles.remote_store.{name}", 0.2)
    with held(url) as process:
        os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(StoreError, match="does not answer"):
                StoreHolder(store_path(url)).ask("POST", BACKUP, {"file": url}, seconds=None)
        finally:
            os.kill(process, signal.SIGCONT)


def test_the_clock_is_the_holders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A demo's time runs ahead: what has expired there has expired for a command too."""
    url = _store_of(tmp_path / "trimtab.duckdb")
    with held(url, ahead=timedelta(days=30)):
        main(["--store", url, "--quiet", "findings", "list", "--all"])
    assert "resolved" in capsys.readouterr().out


def test_the_socket_is_its_owners_alone(tmp_path: Path) -> None:
    """Nobody else may connect; it goes with its process, and one left behind is replaced."""
    url = _store_of(tmp_path / "trimtab.duckdb")
    path = socket_path(store_path(url))
    for _round in range(2):
        with held(url):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not path.exists()
        with socket.socket(socket.AF_UNIX) as left_behind:
            left_behind.bind(str(path))
    assert served_store(store_path(url)) is None


def test_a_socket_of_somebody_else_is_not_asked(tmp_path: Path) -> None:
    """In a folder that others may write it could be anybody's."""
    url = _store_of(tmp_path / "trimtab.duckdb")
    with held(url):
        assert served_store(store_path(url)) is not None
        os.chown(socket_path(store_path(url)), 12345, 12345)
        assert served_store(store_path(url)) is None
        assert main(["--store", url, "store", "backup", str(tmp_path / "b")]) == 1
    assert not (tmp_path / "b").exists()


def test_a_deep_folder_has_a_socket_too(tmp_path: Path) -> None:
    """An address of a socket has 108 bytes."""
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    url = _store_of(deep / "trimtab.duckdb")
    with held(url):
        found = served_store(store_path(url))
        assert found is not None
        assert len(found.reader.findings()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE audit", "DELETE FROM audit", "SELECT 1; DROP TABLE audit", "",
        "COPY audit TO '/tmp/out.csv'", "SELECT * FROM read_text('/etc/passwd')",
        "ATTACH '/tmp/other.duckdb'", "SET threads = 1", "nonsense",
    ],
)  # fmt: skip
def test_queries_only_read(text: str, holder: str) -> None:
    """One SELECT on the store's own tables, whoever asks."""
    with pytest.raises(StoreError):
        StoreHolder(store_path(holder)).ask("POST", "/store/rows", {"text": text, "values": []})


def test_a_served_store_refuses_to_write(holder: str) -> None:
    """What the holder has no words for is refused before anything is done."""
    store = ServedStore(store_path(holder))
    with pytest.raises(StoreBusyError, match="does not take this command"):
        store.append_audit(at=utc_now(), actor="a", event="e", digest="", detail="")
    with pytest.raises(StoreBusyError):
        store.accept_losses()
