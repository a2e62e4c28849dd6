"""What holds for every test."""

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import slow_end
from beds.folder_ends import FolderEnds
from beds.memory_folder import memory_folder
from beds.postgres import PostgresBed, running_postgres
from beds.slurm_files import ROOT as SLURM_ROOT
from beds.stores import DUCKDB, ENGINES, POSTGRES, Stores, filled
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from reliability import Measured, ReliabilityReport

from data.store import Store, open_store
from data.store.engine import duckdb_engine

GOLDEN = Path(__file__).parent / "golden"
_WRITE_GOLDEN = os.environ.get("TRIMTAB_GOLDEN") == "1"
_SCREENSHOTS = "TRIMTAB_SCREENSHOTS"
_ENGINE = os.environ.get("TRIMTAB_TEST_ENGINE", DUCKDB)
"""The engine of the browser's tests that do not run on both."""
_FIRST = {"forecasting/test_forecast_runner.py": -3, "planner/test_advice.py": -2, "collectors": -1}
"""Files and a folder that begin: on a fresh machine two workers compile different kernels, and the
others compile none until those are kept."""
assert _ENGINE in (DUCKDB, POSTGRES), f"TRIMTAB_TEST_ENGINE is {_ENGINE}: duckdb or postgres"


# The same draws in every run of the same code: a red run is then a defect that anybody sees again.
# `make test-all` draws anew and twenty times as much (--hypothesis-profile=drawn); a test that
# states its number takes `drawn.examples`, which follows. Constants of the modules that a process
# has loaded so far are left out, as they depend on which tests ran before. How fast a machine draws
# or runs an example is no property of the code.
providers.is_local_module_file = lambda _path: False  # type: ignore[attr-defined, assignment]
settings.register_profile(
    "drawn",
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("same", settings.get_profile("drawn"), derandomize=True, max_examples=5)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Write the table of faults when asked to: `1` runs its tests alone, `whole` all of them."""
    if SLURM_ROOT:
        os.environ["PATH"] = f"{SLURM_ROOT}/outside:{os.environ.get('PATH', '')}"
    elif folder := memory_folder():
        os.environ["TMPDIR"] = tempfile.tempdir = folder
    asked = os.environ.get("TRIMTAB_RELIABILITY")
    if asked in ("1", "whole"):
        config.pluginmanager.register(ReliabilityReport(alone=asked == "1"))


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what waits for the slow end, where whole files are collected, and order the files."""
    if not any("::" in argument for argument in config.args):
        slow_end.mark(items)
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """When the file of a test begins among the others: the lowest first."""
    file = slow_end.name_of(item).partition("::")[0]
    return _FIRST.get(file, _FIRST.get(file.partition("/")[0], 0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give `--dist loadfile` whole folders whose tests share a cluster: one worker starts it."""
    from beds.scopes import FolderScheduling  # xdist may not be there

    return FolderScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no cycles of objects meanwhile: nearly all that is made is kept, 2 of 18 CPU s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Look for cycles of objects less often, and never among what the whole run keeps."""
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(scope="module")
def no_garbage() -> Iterator[None]:
    """Keep what earlier tests left from being deleted at the depth at which Python gives up.

    A finalizer that runs there fails with a RecursionError, and pytest fails the test for it. A
    search takes half a second in a worker that has run for a while: one for a file.
    """
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def folder_ends(pytestconfig: pytest.Config) -> Iterator[FolderEnds]:
    """Where a session-wide fixture enters what it runs for the tests of its folder alone."""
    ends = FolderEnds()
    pytestconfig.pluginmanager.register(ends)
    yield ends
    pytestconfig.pluginmanager.unregister(ends)
    ends.close()


@pytest.fixture(autouse=True, scope="session")
def no_state_of_the_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the state folder of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread_of_duckdb() -> Iterator[None]:
    """Statements of a test process run in the thread that asks.

    Waking a second one for each of them takes a quarter to a half of their CPU time, and DuckDB
    scans what has fewer than 122,880 rows in one anyway. Servers and commands run as they are.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(duckdb_engine.CONFIG, "threads", "1")
        yield


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Settings of the person who runs the tests reach no test, nor does another test's state."""
    own = tmp_path_factory.getbasetemp() / f"state-{uuid4()}"  # made by the test that writes there
    monkeypatch.setenv("XDG_STATE_HOME", str(own))
    for name in list(os.environ):
        if name.startswith("TRIMTAB_") and name != _SCREENSHOTS:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def own_main() -> Iterator[None]:
    """Put `__main__` back: Streamlit leaves its page there, and a spawned process would run it."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """Notes a figure of the test for docs/reliability.md."""
    return lambda said: record_property("measured", said)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with a file of tests/golden; `make golden` writes the file instead.

    A test that uses it has `golden` in its name or in that of its file.
    """

    def same_as_golden(name: str, text: str) -> None:
        path = GOLDEN / name
        if _WRITE_GOLDEN:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name} differs: see `make golden`"

    return same_as_golden


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresBed]:
    """A real PostgreSQL on a socket, one for all tests that ask; its databases are theirs."""
    with running_postgres() as bed:
        open_store(bed.create("store_template")).close()
        yield bed


@pytest.fixture
def postgres_url(postgres: PostgresBed) -> Iterator[str]:
    """The address of a fresh store on PostgreSQL, gone after the test."""
    with postgres.database(template="store_template") as url:
        yield url


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    """The engine under the browser's tests: both where a test says `on_both_engines`."""
    return str(getattr(request, "param", _ENGINE))


@pytest.fixture(scope="session")
def stores(engine: str, request: pytest.FixtureRequest) -> Stores:
    """Makes stores of that engine."""
    return Stores(engine=engine, server=lambda: request.getfixturevalue("postgres"))


@pytest.fixture(params=ENGINES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh store: every test that asks runs on both engines."""
    if request.param == DUCKDB:
        return f"duckdb:///{tmp_path}/t.duckdb"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on each of the engines."""
    with filled(store_url) as opened:
        yield opened
