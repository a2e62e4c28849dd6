"""A DuckDB file whose write-ahead log was cut, removed or damaged says what it lacks."""

import json
import os
import random
import shutil
import signal
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from beds.forked_trimtab import fork_trimtab
from factories import NOW, make_collected, make_samples

from dashboard.cli import main
from data.base.errors import StoreError
from data.store import Store, open_store

ENDS = ("", ".wal", ".head")
SEEDS = 24


def url_of(path: Path) -> str:
    """The address of a DuckDB file."""
    return f"duckdb:///{path}"


def snapshot(path: Path, folder: Path) -> Path:
    """Copy what a kill at this moment would leave on the disk."""
    folder.mkdir()
    for end in ENDS:
        if (part := path.with_name(path.name + end)).exists():
            shutil.copy(part, folder / part.name)
    return folder / path.name


def write(store: Store, number: int) -> None:
    """One acknowledged write of one of several kinds."""
    if number % 3 == 2:
        store.append_audit(at=NOW, actor="ada", event="noted", digest="", detail=str(number))
    else:
        end = NOW + timedelta(minutes=number)
        store.keep(make_collected(make_samples(minutes=1, end=end), batch_id=str(number)))


def contents(store: Store) -> tuple[int, int]:
    """How many batches and noted entries the store holds."""
    noted = sum(entry.event == "noted" for entry in store.reader.audit())
    return store.reader.counts()["batches"], noted


def damage(log: Path, chance: random.Random) -> None:
    """Remove, cut or flip the log."""
    kind = chance.choice(("remove", "cut", "flip", "empty"))
    body = bytearray(log.read_bytes())
    if kind == "remove":
        log.unlink()
        return
    place = chance.randrange(len(body))
    if kind == "flip":
        body[place] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del body[place:]
    else:
        body.clear()
    log.write_bytes(body)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_acknowledged_write_that_is_lost_is_told(tmp_path: Path, seed: int) -> None:
    """Nothing is told where nothing is lost, after a kill, a checkpoint or a clean close."""
    chance = random.Random(seed)  # noqa: S311 - damage, no secret
    path = tmp_path / "w.duckdb"
    for round_number in range(2):  # the second begins with a checkpoint by a clean close
        with open_store(url_of(path)) as store:
            assert store.losses == ()
            for number in range(chance.randrange(1, 4)):
                write(store, 10 * round_number + number)
            acknowledged = contents(store)
            killed = snapshot(path, tmp_path / f"killed{round_number}")
            write(store, 10 * round_number + 9)
            later = snapshot(path, tmp_path / f"later{round_number}")
    # Killed between the commit and its note: the store is ahead, and nothing is lost.
    shutil.copy(killed.with_name("w.duckdb.head"), later.with_name("w.duckdb.head"))
    with open_store(url_of(later)) as opened:
        assert opened.losses == ()
    log = killed.with_name("w.duckdb.wal")
    if seed % 4 and log.exists():
        damage(log, chance)
    try:
        opened = open_store(url_of(killed))
    except StoreError:  # told: a log whose checksum does not fit is not replayed
        return
    with opened:
        found = contents(opened)
        assert opened.reader.verify_audit() == ()
        lost_batches, lost_entries = (
            before - now for before, now in zip(acknowledged, found, strict=True)
        )
        told = " ".join(opened.losses)
        assert bool(told) == (found != acknowledged)
        assert (f"{lost_batches} batches of facts (table batches," in told) == bool(lost_batches)
        assert (f"{lost_entries} entries of the record" in told) == bool(lost_entries)


def lossy_store(tmp_path: Path) -> Path:
    """A store whose log was removed after two acknowledged writes."""
    path = tmp_path / "w.duckdb"
    with open_store(url_of(path)) as store:
        write(store, 0)
        write(store, 2)
        killed = snapshot(path, tmp_path / "killed")
    killed.with_name("w.duckdb.wal").unlink()
    return killed


def test_a_loss_stays_told_until_it_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Further writes hide nothing; the doctor ends with 3; the record keeps it for good."""
    path = lossy_store(tmp_path)
    for _opening in range(2):
        with open_store(url_of(path)) as store:
            assert len(store.losses) == 1
            assert store.reader.verify_audit() == ()
            write(store, 5)
    doctor = ["--store", url_of(path), "doctor", "--format", "json"]
    assert main(doctor) == 3
    rows = json.loads(capsys.readouterr().out)
    (row,) = [row for row in rows if row["part"] == "store"]
    assert "lacks writes that it had acknowledged" in row["detail"]
    assert main(["--store", url_of(path), "store", "check"]) == 3
    assert main(["--store", url_of(path), "store", "check", "--accept"]) == 0
    assert main(["--store", url_of(path), "store", "check"]) == 0
    with open_store(url_of(path)) as store:
        assert store.losses == ()
        assert [entry.event for entry in store.reader.audit()].count("writes-lost") == 1


def test_a_note_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Nobody can tell then whether writes are missing."""
    path = tmp_path / "w.duckdb"
    with open_store(url_of(path)) as store:
        write(store, 0)
    path.with_name("w.duckdb.head").write_bytes(b"{")
    with open_store(url_of(path)) as store:
        assert "cannot be read" in store.losses[0]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_the_store_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    """Folder 0700, file, log and note 0600, whatever the umask, while it is open and killed."""
    path = tmp_path / "state" / "deeper" / "w.duckdb"
    script = tmp_path / "keep.py"
    script.write_text(
        f"import os; os.umask({umask})\n"
        "from factories import make_collected\nfrom data.store import open_store\n"
        f"store = open_store('{url_of(path)}')\nstore.keep(make_collected())\n"
        "os.kill(os.getpid(), 9)"
    )
    log = tmp_path / "said.log"
    process = fork_trimtab((), script=script, folder=tmp_path, environ={**os.environ}, log=log)
    assert process.wait(timeout=120) == -signal.SIGKILL
    modes = {part.name: stat.S_IMODE(part.stat().st_mode) for part in path.parent.iterdir()}
    assert modes == dict.fromkeys(("w.duckdb", "w.duckdb.wal", "w.duckdb.head"), 0o600)
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o700), (0o775, 0o770), (0o700, 0o700)])
def test_an_existing_store_is_tightened_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: int, after: int
) -> None:
    """Our own folder too; one that its group may write keeps its group, others are untouched."""
    path = tmp_path / ".trimtab" / "w.duckdb"
    open_store(url_of(path)).close()
    path.chmod(0o644)
    path.parent.chmod(before)
    tmp_path.chmod(0o755)
    open_store(url_of(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == after
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert "now only their owner can" in caplog.text
    caplog.clear()
    open_store(url_of(path)).close()
    assert caplog.text == ""


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_reports_follow_the_umask_of_their_reader(tmp_path: Path, umask: int) -> None:
    """What a person asked for with --out is theirs to share; what is kept is not."""
    path = tmp_path / "w.duckdb"
    with open_store(url_of(path)) as store:
        store.keep(make_collected())
    out = tmp_path / "week.md"
    before = os.umask(umask)
    try:
        assert main(["--store", url_of(path), "report", "weekly", "--format", "md",
                     "--out", str(out), "--now", f"{NOW:%Y-%m-%dT%H:%M:%SZ}"]) == 0  # fmt: skip
    finally:
        after = os.umask(before)
    assert after == umask
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("kind", ["text", "empty", "pipe", "folder"])
def test_what_is_no_store_is_refused_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    """By its path, before its rights, its content or its folder are touched."""
    path = tmp_path / "other"
    makers: dict[str, Callable[[], object]] = {
        "text": lambda: path.write_text("the notes of somebody else\n"),
        "empty": path.touch,
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    makers[kind]()
    path.chmod(0o755)
    before = path.stat()
    with pytest.raises(StoreError, match=str(path)) as refused:
        open_store(url_of(path))
    assert "--store" in refused.value.hint
    after = path.stat()
    assert (after.st_mode, after.st_size, after.st_mtime_ns) == (
        before.st_mode,
        before.st_size,
        before.st_mtime_ns,
    )
    assert list(tmp_path.iterdir()) == [path]
