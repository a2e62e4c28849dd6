"""The command line where no extra is installed: one sentence that names it, and no traceback."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from data.base import extras
from data.base.extras import EXTRAS, install_command

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from dashboard.cli import main
sys.exit(main(sys.argv[1:]))
"""
ABSENT = {module.partition(".")[0] for module in EXTRAS.values()} | {"httpx", "joserfc"}
_TEXTS = {".py", ".md", ".yml", ".yaml", ".toml", ".sh", ".txt", ".html", ".tpl"}
POSTGRES = ("--store", "postgresql+psycopg://u@127.0.0.1:1/t")
OIDC = {
    "TRIMTAB_ACCESS_MODE": "oidc",
    "TRIMTAB_ACCESS_OIDC_METADATA_URL": "https://idp.example/.well-known/openid-configuration",
    "TRIMTAB_ACCESS_OIDC_CLIENT_ID": "trimtab",
    "TRIMTAB_ACCESS_OIDC_CLIENT_SECRET": "x" * 40,
    "TRIMTAB_ACCESS_PUBLIC_URL": "https://trimtab.example",
}
TRIED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "postgres": ((*POSTGRES, "jobs"), {}),
    "postgres, doctor": ((*POSTGRES, "doctor"), {}),
    "postgres, serve": ((*POSTGRES, "serve"), {}),
    "kubernetes": (("doctor",), {"TRIMTAB_KUBERNETES_ENABLED": "true"}),
    "ray": (("doctor",), {"TRIMTAB_RAY_ADDRESS": "ray://127.0.0.1:1"}),
    "mcp": (("mcp",), {}),
    "pages": (("demo",), {}),
    "prophet": (("doctor",), {"TRIMTAB_PLANNING_MODEL": "prophet"}),
    "auth": (("serve",), OIDC),
}


def test_every_extra_is_tried() -> None:
    """Those of the package that commands need, and no other."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    others = {"docs", "peers", "dev", "mutants"}
    assert set(EXTRAS) == set(project["optional-dependencies"]) - others
    assert {case.partition(",")[0] for case in TRIED} == set(EXTRAS)


@pytest.mark.slow
@pytest.mark.parametrize("case", TRIED)
def test_a_missing_extra_is_named(case: str, tmp_path: Path) -> None:
    """Whichever command needs it."""
    words, settings = TRIED[case]
    extra = case.partition(",")[0]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB")}
    environ |= settings | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    environ["PYTHONPATH"] = str(Path.cwd())
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=ABSENT), *words],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode in (1, 2, 3), said
    assert "Traceback" not in said
    assert f"Install the extra '{extra}': make setup, in {Path.cwd()}." in said


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_installed_trimtab_names_the_libraries(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never itself: whoever owns that name in an index would run code here."""
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    libraries = project["optional-dependencies"][extra]
    words = shlex.split(install_command(extra).partition(": ")[2])
    assert words[:4] == ["pip", "--python", sys.executable, "install"]
    assert [Requirement(word) for word in words[4:]] == [Requirement(line) for line in libraries]


def test_no_text_asks_an_index_for_trimtab() -> None:
    """Neither message, page nor script: the name is nobody's yet."""
    files = subprocess.run(
        ["git", "ls-files", "-z"], check=True, capture_output=True, text=True
    ).stdout.split("\0")
    asks = re.compile(
        r"(pip|pipx|uv tool|uvx|uv pip)\s+(install|run)?\s*['\"]?trimtab\b|trimtab\[[a-z]"
    )
    texts = {name: Path(name) for name in files if name and Path(name).suffix in _TEXTS}
    assert [
        f"{name}:{number}"
        for name, path in texts.items()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if asks.search(line) and name != "tests/dashboard/test_missing_extras.py"
    ] == []
