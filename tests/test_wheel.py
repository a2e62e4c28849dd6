"""The wheel beside packages of the same names: it puts one package into site-packages, and runs."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.ports import free_port

from dashboard.cli.parser.parser import build_parser

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
OURS = ("data", "collectors", "forecasting", "planner", "dashboard")
FOREIGN = "raise RuntimeError('a package that is not of Trimtab was imported')\n"
SETTINGS = """
[store]
url = "duckdb:///t.duckdb"
[simulated_fleet]
enabled = true
nodes = 1
[prometheus]
lookback_hours = 3
[planning]
horizon_slots = 8
"""
CHILD = """
import trimtab; trimtab.own_packages_first()
from inspect import getfile
from loky import ProcessPoolExecutor
from data.base.errors import TrimtabError
with ProcessPoolExecutor(1) as pool:
    print(pool.submit(getfile, TrimtabError).result())
"""
RAY = """
import logging, trimtab; trimtab.own_packages_first()
from inspect import getfile
from data.base.errors import SettingsError, TrimtabError
from forecasting.distributed.ray_pool import by_ray
logging.basicConfig(level="WARNING")
for _attempt in range(4):  # on a busy machine Ray gives a start up after 30 s
    try:
        print(*by_ray(getfile, [TrimtabError], address="local"))
        break
    except SettingsError as error:
        print(error)
"""
HELP = """
import contextlib, sys, trimtab; trimtab.own_packages_first()
from dashboard.cli import main
for name in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        main([name, "--help"])
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """A virtual environment with the wheel, and a folder to work in, both hostile."""

    venv: Path
    work: Path
    environ: dict[str, str]

    def run(self, *words: str, program: str = "trimtab", stderr: int = subprocess.PIPE) -> str:
        """What a program of the environment says on stdout; fails where it fails."""
        done = subprocess.run(
            [self.venv / "bin" / program, *words],
            cwd=self.work, env=self.environ, text=True, check=False,
            stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout


def take_names(folder: Path) -> Path:
    """Put packages of other people, of our five names, into a folder."""
    for name in OURS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(FOREIGN, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this repository."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", folder], cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, installed beside other people's `data`, `dashboard` and so on, on every path."""
    folder = tmp_path_factory.mktemp("installed")
    venv, work = folder / "venv", take_names(folder / "work")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = (venv / "lib").glob("python*/site-packages")
    take_names(packages)
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--offline", "--no-deps"]
    subprocess.run(
        [*uv, "--quiet", "--python", venv / "bin" / "python", wheel], check=True, cwd=folder
    )
    # What Trimtab needs; the .pth of the repository in there is not followed.
    (ours,) = {path for path in sys.path if path.endswith("site-packages")}
    (packages / "dependencies.pth").write_text(f"{ours}\n", encoding="utf-8")
    (work / "trimtab.toml").write_text(SETTINGS, encoding="utf-8")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(take_names(folder / "path")),
        "RAY_worker_niceness": "0",
        "NUMBA_DISABLE_JIT": "1",  # compiling takes minutes, and a small fleet needs no speed
    }
    return Installed(venv, work, environ)


def test_site_packages_gets_one_name(wheel: Path) -> None:
    """Nothing but `trimtab` and its metadata; what the packages read at run time is inside."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"trimtab"}
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *OURS],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    tracked = {f"trimtab/{name}" for name in files if (ROOT / name).is_file()}
    assert tracked - set(names) == set()


def test_every_command_answers_beside_foreign_packages(installed: Installed) -> None:
    """`trimtab` and each of its commands shows its help, though four places hold our names."""
    assert installed.run("--version").startswith("trimtab ")
    names = next(iter(build_parser()._subparsers._group_actions)).choices  # type: ignore[union-attr]
    said = installed.run("-c", HELP, *names, program="python")
    own = {"recommendations": "findings"}  # a name for one release more
    assert [name for name in names if f"usage: trimtab {own.get(name, name)} " not in said] == []


def test_a_cycle_runs_beside_foreign_packages(installed: Installed) -> None:
    """Collect, forecast, plan, recommend and store, by the installed program."""
    at = ("--now", "2026-03-04T14:00:00+00:00")
    outcome = json.loads(installed.run("--quiet", "cycle", *at, "--format", "json"))
    assert outcome["forecasts"]
    assert json.loads(installed.run("jobs", "--format", "json"))


def test_a_process_of_loky_finds_our_packages(installed: Installed) -> None:
    """The child is given a class of `data`, and imports that of the installation."""
    assert "site-packages/trimtab/data/" in installed.run("-c", CHILD, program="python")


def test_a_worker_of_ray_finds_our_packages(installed: Installed) -> None:
    """Ray puts the working directory first on its workers' path, with another `data` in it."""
    said = installed.run("-c", RAY, program="python", stderr=subprocess.STDOUT)
    assert "computed by this process instead" not in said, said
    assert "site-packages/trimtab/data/" in said


@contextmanager
def served(installed: Installed, port: int) -> Iterator[None]:
    """`trimtab serve` of the installation."""
    with subprocess.Popen(
        [installed.venv / "bin/trimtab", "serve", "--port", str(port)],
        cwd=installed.work, env=installed.environ,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def test_the_server_answers_beside_foreign_packages(installed: Installed) -> None:
    """`trimtab serve` serves /livez and a page from the installation."""
    port = free_port()
    with served(installed, port):
        assert answer(f"http://127.0.0.1:{port}/livez")
        assert b"<html" in answer(f"http://127.0.0.1:{port}/")


def answer(address: str) -> bytes:
    """What an address answers, once somebody listens there."""
    for _attempt in range(1500):
        try:
            with urllib.request.urlopen(address, timeout=30) as found:
                return bytes(found.read())
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError(f"{address} does not answer")
