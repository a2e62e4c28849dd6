"""Importing is cheap and free of effects."""

import json
import pkgutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pytest

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.web.frame.navigation import PAGES
from data.store import open_store

START = datetime(2026, 1, 7, 12, tzinfo=UTC)
ROOT = Path(__file__).parents[1]
PACKAGES = ("data", "collectors", "forecasting", "planner", "dashboard")
HEAVY = ("prophet", "streamlit", "pandas", "plotly", "duckdb", "sqlalchemy", "matplotlib")


def modules_after(statement: str) -> set[str]:
    """Run a statement in a fresh interpreter; give the modules it left loaded."""
    code = (
        f"import json, sys\ntry:\n    {statement}\nexcept SystemExit as end:\n"
        "    assert end.code in (0, None), end.code\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_nothing_heavy(option: str) -> None:
    """`trimtab --help` and `--version` answer without loading pandas, Prophet or Streamlit."""
    loaded = modules_after(f"from dashboard.cli import main; main([{option!r}])")
    assert loaded & set(HEAVY) == set()


def test_an_estimate_loads_neither_arrays_nor_a_store() -> None:
    """A launched job and a service are estimated without numpy, pandas or SQLAlchemy."""
    words = "['--store', 'duckdb:///none.duckdb', 'estimate', '--gpu', 'h100-sxm', '--', 'vllm', "
    words += "'serve', 'llama3-8b', '--max-model-len', '512']"
    loaded = modules_after(f"from dashboard.cli import main; assert main({words}) == 0")
    assert loaded & {*HEAVY, "numpy"} == set()


def test_pages_and_api_answer_before_the_planner_is_loaded() -> None:
    """A server listens without what only a cycle, a what-if or a placement needs."""
    loaded = modules_after(
        "import dashboard.cli.operate.serve_commands, dashboard.web.server.pages"
    )
    assert loaded & {"numba", "scipy", "highspy"} == set()
    assert "streamlit" in loaded


LISTS = (
    "jobs", "gpus", "nodes", "sources", "audit", "findings list", "findings idle", "savings",
    "plan", "forecast",
)  # fmt: skip
WAITS = (
    "pandas", "numpy", "pyarrow", "scipy", "numba", "prophet", "plotly", "streamlit", "requests",
    "collectors", "forecasting", "planner",
)  # fmt: skip
MAX_LIST_MODULES = 620
MAX_NO_STORE_MODULES = 270


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with samples of the simulated fleet, whose address it is."""
    url = f"duckdb:///{tmp_path_factory.mktemp('lists') / 's.duckdb'}"
    collector = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=1), step_seconds=300)
    with open_store(url) as filled:
        filled.keep(collector.collect(Window(start=START, end=START + timedelta(hours=2))))
    return url


@pytest.mark.parametrize("command", LISTS)
def test_a_list_loads_no_frames(command: str, store: str) -> None:
    """A list is answered without pandas, whatever loads it, and within its budget of modules."""
    given = ["--store", store, *command.split()]
    loaded = modules_after(f"from dashboard.cli import main; main({given!r})")
    assert loaded & set(WAITS) == set()
    assert len(loaded) <= MAX_LIST_MODULES


@pytest.mark.parametrize("command", [*LISTS, "energy", "memory"])
def test_no_store_is_said_before_a_database_is_loaded(command: str, tmp_path: Path) -> None:
    """Where there is no store, a list says so without SQLAlchemy or DuckDB."""
    given = ["--store", f"duckdb:///{tmp_path}/none.duckdb", *command.split()]
    loaded = modules_after(f"from dashboard.cli import main; sys.exit(main({given!r}) - 1)")
    assert loaded & {*WAITS, *HEAVY, "pydantic"} == set()
    assert len(loaded) <= MAX_NO_STORE_MODULES


def test_prophet_and_streamlit_wait_until_they_are_needed() -> None:
    """The module that runs cycles loads neither of them, nor the half of SciPy few fleets need."""
    waits = {"prophet", "streamlit", "scipy.optimize"}
    assert modules_after("import dashboard.cycle.run_cycle") & waits == set()


SCRIPTS = {
    "dashboard.web.app",
    *(f"dashboard.web.{row.view}.{tab.view}" for row in PAGES for tab in row.tabs),
}


@pytest.mark.parametrize("package", [*PACKAGES, "benchmarks"])
def test_every_module_can_be_imported(package: str) -> None:
    """Also of a benchmark that nobody runs; Streamlit's page scripts run only in a session."""
    found = [
        info.name
        for info in pkgutil.walk_packages([str(ROOT / package)], prefix=f"{package}.")
        if info.name not in SCRIPTS
    ]
    assert found
    for name in found:
        import_module(name)
