"""Backup and restore while the store is written to: a prefix of what was acknowledged, proven."""

import json
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from factories import NOW, make_collected, make_samples

from dashboard.cli import main
from data.base.errors import StoreBusyError, StoreError
from data.store import Store, open_store
from data.store.engine.bulk import read_frame
from data.store.handles.backup import back_up, restore
from data.store.handles.remote_store import StoreHolder
from data.store.rollups.rollup import make_hours

REPOSITORY = Path(__file__).parents[2]


def silent(_table: str, _done: int, _total: int) -> None:
    """Show no progress."""


def write(store: Store, number: int) -> None:
    """Two acknowledged writes: an entry of the record, then a batch; never the batch alone."""
    store.append_audit(at=NOW, actor="ada", event="noted", digest="", detail=str(number))
    end = NOW + timedelta(minutes=10 * number)
    store.keep(make_collected(make_samples(minutes=9, end=end), batch_id=f"{number:04}"))


def numbers(store: Store) -> tuple[list[int], list[int]]:
    """The numbers of the entries and of the batches that the store holds, in order."""
    entries = [int(entry.detail) for entry in store.reader.audit() if entry.event == "noted"]
    with store._engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT batch_id FROM batches ORDER BY sequence").all()
    return entries, [int(row[0]) for row in found]


def require_whole(store: Store, *, begun: int, ended: int) -> None:
    """The store is a prefix of the writes, at least those acknowledged before it was asked for."""
    entries, batches = numbers(store)
    assert entries == list(range(len(entries)))
    assert batches == list(range(len(batches)))
    assert len(entries) - len(batches) in (0, 1)
    assert begun <= len(batches) <= len(entries) <= ended + 1
    assert store.reader.counts()["samples"] == 9 * len(batches)
    assert store.reader.verify_audit() == ()
    assert store.losses == ()


def test_a_new_machine_needs_no_folder(tmp_path: Path) -> None:
    """A backup is restored where no store has been: the folder is made, for the owner only."""
    with open_store(f"duckdb:///{tmp_path}/old.duckdb") as store:
        write(store, 0)
        back_up(store, tmp_path / "backup.duckdb", progress=silent)
    url = f"duckdb:///{tmp_path}/new/.trimtab/trimtab.duckdb"
    restore(tmp_path / "backup.duckdb", url, replace=False, now=NOW, progress=silent)
    assert (tmp_path / "new/.trimtab").stat().st_mode & 0o777 == 0o700
    with open_store(url) as store:
        assert numbers(store) == ([0], [0])


def rollups(store: Store) -> list[str]:
    """The roll-ups of the store, as they are kept."""
    tables = []
    with store._engine.connect() as connection:
        for table in ("five_minute", "hourly"):
            rows = read_frame(connection, f"SELECT * FROM {table}")  # noqa: S608
            ordered = rows[sorted(rows.columns)]
            tables.append(ordered.sort_values(list(ordered.columns)).to_csv(index=False))
    return tables


def test_a_backup_under_writes_is_a_prefix_of_what_was_acknowledged(
    store: Store, tmp_path: Path
) -> None:
    """On both engines; the roll-ups of what was restored follow from its samples."""
    acknowledged = 0
    stop = threading.Event()
    for _first in range(3):
        write(store, acknowledged)
        acknowledged += 1

    def keep_on_writing() -> None:
        nonlocal acknowledged
        while not stop.is_set() and acknowledged < 200:
            write(store, acknowledged)
            acknowledged += 1

    writer = threading.Thread(target=keep_on_writing)
    writer.start()
    spans = []
    try:
        for number in range(2):
            begun = acknowledged
            back_up(store, tmp_path / f"b{number}", progress=silent)
            spans.append((begun, acknowledged))
    finally:
        stop.set()
        writer.join()
    for number, (begun, ended) in enumerate(spans):
        url = f"duckdb:///{tmp_path}/restored{number}.duckdb"
        restore(tmp_path / f"b{number}", url, replace=False, now=NOW, progress=silent)
        with open_store(url) as restored:
            require_whole(restored, begun=begun, ended=ended)
            kept = rollups(restored)
            with restored._transaction() as connection:
                first = int((NOW - timedelta(hours=2)).timestamp()) // 3600 * 3600
                make_hours(connection, first, first + 3600 * 60)
            assert rollups(restored) == kept


def test_a_restored_store_has_the_proof_of_the_backup(store: Store, tmp_path: Path) -> None:
    """Rows and hashes of every table; the backup itself is left as it is."""
    write(store, 0)
    with store._transaction() as connection:  # which the connection holds on to
        connection.exec_driver_sql("CREATE TEMP TABLE merged_allocations AS SELECT 1 AS one")
    made = back_up(store, tmp_path / "b", progress=silent)
    body = (tmp_path / "b").read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".b", "b"))] == ["b"]
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    url = f"duckdb:///{tmp_path}/new.duckdb"
    assert restore(tmp_path / "b", url, replace=False, now=NOW, progress=silent) == made
    assert (tmp_path / "b").read_bytes() == body


def test_a_store_that_stands_there_is_moved_aside_when_told(tmp_path: Path) -> None:
    """Without --replace it is refused; what was moved aside opens as the store it was."""
    url = f"duckdb:///{tmp_path}/s.duckdb"
    with open_store(url) as store:
        write(store, 0)
        back_up(store, tmp_path / "b", progress=silent)
        write(store, 1)
        with pytest.raises(StoreError, match="exists already"):
            back_up(store, tmp_path / "b", progress=silent)
    with pytest.raises(StoreError, match="--replace"):
        restore(tmp_path / "b", url, replace=False, now=NOW, progress=silent)
    restore(tmp_path / "b", url, replace=True, now=NOW, progress=silent)
    with open_store(url) as store:
        assert numbers(store) == ([0], [0])
        assert store.losses == ()
    aside = next(tmp_path.glob("s.duckdb.before-*Z"))
    with open_store(f"duckdb:///{aside}") as store:
        assert numbers(store) == ([0, 1], [0, 1])
        assert store.losses == ()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("damage", ["flipped", "zeroed", "cut"])
def test_a_damaged_backup_is_named_and_changes_nothing(
    tmp_path: Path, share: float, damage: str
) -> None:
    """Wherever the damage is, the backup is named, unless it holds its rows all the same."""
    url = f"duckdb:///{tmp_path}/s.duckdb"
    with open_store(url) as store:
        write(store, 0)
        made = back_up(store, tmp_path / "b", progress=silent)
    before = (tmp_path / "s.duckdb").read_bytes()
    body = bytearray((tmp_path / "b").read_bytes())
    place = int(share * len(body))
    if damage == "flipped":
        body[place] ^= 1
    elif damage == "zeroed":
        body[place : place + 4096] = bytes(len(body[place : place + 4096]))
    else:
        del body[place:]
    (tmp_path / "damaged").write_bytes(body)
    told = ""
    try:
        assert restore(tmp_path / "damaged", url, replace=True, now=NOW, progress=silent) == made
    except StoreError as error:
        told = error.message
    if told:
        assert str(tmp_path / "damaged") in told
        assert "restoring" not in told
        assert (tmp_path / "s.duckdb").read_bytes() == before
    assert told or damage != "cut"


def test_a_damaged_store_is_replaced_by_its_backup(tmp_path: Path) -> None:
    """What cannot be opened any more is what a backup is for; a damaged backup is refused."""
    url = f"duckdb:///{tmp_path}/s.duckdb"
    with open_store(url) as store:
        write(store, 0)
        back_up(store, tmp_path / "b", progress=silent)
    (tmp_path / "s.duckdb").write_bytes(b"no store at all")
    (tmp_path / "c").write_bytes((tmp_path / "b").read_bytes()[:20_000])
    with pytest.raises(StoreError):
        restore(tmp_path / "c", url, replace=True, now=NOW, progress=silent)
    assert (tmp_path / "s.duckdb").read_bytes() == b"no store at all"
    restore(tmp_path / "b", url, replace=True, now=NOW, progress=silent)
    with open_store(url) as store:
        assert numbers(store) == ([0], [0])


def test_a_backup_goes_into_an_empty_database_only(postgres_url: str, tmp_path: Path) -> None:
    """PostgreSQL: restored once, then refused."""
    with open_store(f"duckdb:///{tmp_path}/s.duckdb") as store:
        write(store, 0)
        back_up(store, tmp_path / "b", progress=silent)
    restore(tmp_path / "b", postgres_url, replace=False, now=NOW, progress=silent)
    with pytest.raises(StoreError, match="not empty"):
        restore(tmp_path / "b", postgres_url, replace=True, now=NOW, progress=silent)
    with open_store(postgres_url) as store:
        assert numbers(store) == ([0], [0])
        assert store.reader.verify_audit() == ()


WRITER = """
import sys; sys.path[:0] = ["tests", "tests/data"]
from test_backup import write
from dashboard.api.unix_socket import LocalDoor, local_app
from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.settings.all_settings import Settings
from data.store import open_store
store = open_store(sys.argv[1])
service = DecisionService(store=store, settings=Settings, clock=utc_now)
with LocalDoor(local_app(store, service, utc_now), store.file).running():
    number = 0
    while True:
        write(store, number)
        number += 1
        print(number, flush=True)
"""


def test_the_process_that_holds_the_store_backs_it_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command asks it while it writes; what is restored is a prefix of the acknowledged."""
    url = f"duckdb:///{tmp_path}/s.duckdb"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, url], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            begun = [int(holder.stdout.readline()) for _write in range(3)][-1]
            backup = ["--store", url, "store", "backup", str(tmp_path / "b"), "--format", "json"]
            assert main(backup) == 0
            assert {row["table"] for row in json.loads(capsys.readouterr().out)} >= {"samples"}
            assert main(backup) == 1
            assert "exists already" in capsys.readouterr().err
            with pytest.raises(StoreBusyError):
                restore(tmp_path / "b", url, replace=True, now=NOW, progress=silent)
        finally:
            holder.send_signal(signal.SIGKILL)
            ended = int(([begun] + [int(line) for line in holder.stdout or []])[-1])
    other = f"duckdb:///{tmp_path}/r.duckdb"
    assert main(["--store", other, "store", "restore", str(tmp_path / "b")]) == 0
    with open_store(other) as restored:
        require_whole(restored, begun=begun, ended=ended)


def test_a_holder_of_an_earlier_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no such route: a package that is newer than the server it was installed under."""
    url = f"duckdb:///{tmp_path}/s.duckdb"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, url], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            greet = StoreHolder.greet
            monkeypatch.setattr(
                StoreHolder, "greet", lambda holder: greet(holder) | {"backs_up": False}
            )
            assert main(["--store", url, "store", "backup", str(tmp_path / "b")]) == 1
            assert "of an earlier version of Trimtab" in capsys.readouterr().err
        finally:
            holder.send_signal(signal.SIGKILL)
    assert not (tmp_path / "b").exists()


def test_a_holder_that_answers_nobody_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another command, such as a cycle, makes no backup for others: it says so at once."""
    url = f"duckdb:///{tmp_path}/s.duckdb"
    words = "import sys; from data.store import open_store; s = open_store(sys.argv[1])\n"
    words += "print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", words, url],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert main(["--store", url, "store", "backup", str(tmp_path / "b")]) == 1
        assert "takes no request for a backup" in capsys.readouterr().err
        assert holder.stdin is not None
        holder.stdin.close()
    assert not (tmp_path / "b").exists()
