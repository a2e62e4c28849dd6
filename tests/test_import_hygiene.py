"""Importing is cheap and free of effects."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("data", "collectors", "forecasting", "planner", "dashboard")
HEAVY = ("prophet", "streamlit", "pandas", "plotly", "duckdb", "sqlalchemy", "matplotlib")


def modules_after(statement: str) -> set[str]:
    """Run a statement in a fresh interpreter; give the top-level modules it left loaded."""
    code = (
        f"import json, sys\ntry:\n    {statement}\nexcept SystemExit as end:\n"
        "    assert end.code in (0, None), end.code\n"
        "print('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
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


def test_prophet_and_streamlit_wait_until_they_are_needed() -> None:
    """The module that runs cycles loads neither Prophet nor Streamlit."""
    assert modules_after("import dashboard.cycle") & {"prophet", "streamlit"} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_can_be_imported(package: str) -> None:
    """Every module of the package imports; Streamlit's page scripts run only in a session."""
    found = [
        info.name
        for info in pkgutil.walk_packages([str(ROOT / package)], prefix=f"{package}.")
        if not info.name.startswith(("dashboard.web.app", "dashboard.web.views."))
    ]
    assert found
    for name in found:
        import_module(name)
