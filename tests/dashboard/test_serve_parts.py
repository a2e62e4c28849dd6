"""`trimtab serve --only`: three processes with three roles on one PostgreSQL store."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.heard_trimtab import HeardTrimtab, heard_trimtab
from beds.ports import free_port
from beds.postgres import PostgresBed

from dashboard.cli import main
from data.base.errors import StoreBusyError
from data.store import Store, open_store
from data.store.record.grants import grants_sql

PATIENCE = 150
_TRIMTAB = [sys.executable, "-c", "from dashboard.cli import program; program()"]


def until(condition: Callable[[], bool], what: str, *processes: HeardTrimtab) -> None:
    """Wait for what must come; a process that ends meanwhile fails the test with its words."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        for process in processes:
            assert process.process.poll() is None, process.said
        assert time.monotonic() < deadline, f"{what} did not come in {PATIENCE} s"
        time.sleep(0.2)


@contextmanager
def serving(part: str, url: str, folder: Path, *options: str) -> Iterator[HeardTrimtab]:
    """The process of one part, ended with SIGTERM; it must end well."""
    settings = {
        "TRIMTAB_SIMULATED_FLEET_ENABLED": "true",
        "TRIMTAB_SIMULATED_FLEET_NODES": "1",
        "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": "2",
    }
    words = ["--quiet", "--store", url, "serve", "--only", part, *options]
    with heard_trimtab(words, folder, folder / f"said-by-{part}", **settings) as process:
        yield process
        assert process.end() == 0, process.said


def asked(port: int, path: str = "/readyz") -> dict[str, object]:
    """What a health address answers; nothing while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            found: dict[str, object] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        return dict(json.load(error))
    except OSError:
        return {}


@pytest.fixture
def addresses(postgres: PostgresBed, postgres_url: str) -> dict[str, str]:
    """The store's address for each role, and for its owner."""
    name = postgres_url.partition("@/")[2].partition("?")[0]
    with postgres.connection(name) as owner:
        owner.execute(grants_sql().encode())
    roles = {part: postgres.url(name, role=f"trimtab_{part}") for part in ("web", "cycle", "apply")}
    return roles | {"owner": postgres_url}


@pytest.mark.slow
@pytest.mark.postgres
def test_three_processes_do_what_one_does(addresses: dict[str, str], tmp_path: Path) -> None:
    """The cycle fills the store, the web shows it, the applier waits; a second cycle is refused."""
    port, own_port = free_port(), free_port()
    with open_store(addresses["owner"]) as store, ExitStack() as stack:
        assert store.reader.last_cycle() is None
        cycle = stack.enter_context(
            serving("cycle", addresses["cycle"], tmp_path, "--port", str(own_port))
        )
        web = stack.enter_context(serving("web", addresses["web"], tmp_path, "--port", str(port)))
        apply = stack.enter_context(serving("apply", addresses["apply"], tmp_path))
        everyone = (cycle, web, apply)
        until(lambda: store.reader.last_cycle() is not None, "a cycle", *everyone)
        until(lambda: asked(own_port) == {"ready": True}, "a ready cycle process", *everyone)
        until(lambda: asked(port).get("ready") is True, "a ready page", *everyone)
        assert asked(port)["newest_sample_at"] is not None
        assert store.sole("apply").is_taken()
        second = subprocess.run(
            [*_TRIMTAB, "--store", addresses["cycle"], "serve", "--only", "cycle"],
            cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        assert (second.returncode, "'cycle'" in second.stderr) == (1, True), second.stderr
    free(addresses["owner"])


@pytest.mark.postgres
@pytest.mark.parametrize("words", ["statement", "jobs", "apply resume --by A", "capacity"])
def test_a_server_without_a_free_connection_is_named_as_that(
    postgres: PostgresBed, postgres_url: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A busy server is no address of a wrong kind, and what stands in its record still stands."""
    postgres.admin("DROP ROLE IF EXISTS crowded", "CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
    url = postgres_url.replace("trimtab@", "crowded@")
    assert main(["--store", url, *words.split()]) == 1
    assert "takes no further connection now" in capsys.readouterr().err


@pytest.mark.postgres
def test_a_claim_is_refused_in_words_to_a_role_that_may_not_see_who_has_it(
    postgres: PostgresBed, postgres_url: str
) -> None:
    """PostgreSQL hides the host and the start of another role's session."""
    postgres.admin("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")
    name = postgres_url.partition("@/")[2].partition("?")[0]
    with postgres.connection(name) as owner:
        owner.execute(b"GRANT pg_read_all_data TO reader")
    reading = postgres_url.replace("trimtab@", "reader@")
    with open_store(postgres_url) as store, store.sole("cycle"), open_store(reading) as other:
        with pytest.raises(StoreBusyError, match="is done by another process"):
            other.sole("cycle").require()
        with pytest.raises(StoreBusyError, match=r"a process at this host \(database session"):
            store.sole("cycle").require()


def free(url: str) -> None:
    """After SIGTERM nobody holds a part any more."""
    with open_store(url) as store:
        until(lambda: not any(store.sole(part).is_taken() for part in ("cycle", "apply")), "an end")


def test_one_part_of_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A DuckDB file has one process, and the message says how to get further."""
    code = main(["--store", f"duckdb:///{tmp_path}/t.duckdb", "serve", "--only", "web"])
    said = capsys.readouterr().err
    assert code == 2
    assert "trimtab store copy" in said


def test_grants_are_printed_for_a_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    """Names that are no plain word are refused: they stand in the SQL as they are."""
    assert main(["store", "grants", "--prefix", "gpu"]) == 0
    said = capsys.readouterr().out
    assert "GRANT INSERT ON public.journal TO gpu_apply;" in said
    assert "public.journal TO gpu_web" not in said
    assert main(["store", "grants", "--prefix", "x; DROP"]) == 1


@pytest.mark.parametrize(
    "address", ["me:sesame@h:5432/d", "/d?host=h&user=me&password=sesame", "me:sesame@/d?port=1"]
)
def test_settings_show_a_store_without_its_password(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An address may hold one; what people see does not."""
    url = f"postgresql+psycopg://{address}"
    assert main(["--store", url, "settings", "--format", "json"]) == 0
    said = capsys.readouterr().out
    assert "postgresql+psycopg://" in said
    assert "sesame" not in said


def test_migrate_tells_the_schema(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Running it again changes nothing."""
    said = []
    for _ in range(2):
        assert main(["--store", store_url, "store", "migrate"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].startswith("schema ")
    with open_store(store_url, create=False) as store:
        assert isinstance(store, Store)
