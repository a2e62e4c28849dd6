"""What a release holds, installed into a bare environment outside the repository, and run there.

`make release` has filled dist/release. The environment has no extra, so no page either, and every
package of it is checked by hash. The last test adds the pages by the command that a refusal names.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.ports import free_port
from beds.prometheus import running_prometheus
from reliability import Measured

from dashboard.cli.parser.parser import build_parser

pytestmark = pytest.mark.slow_end
ROOT = Path(__file__).parents[1]
FILES = ROOT / "dist/release"
UV = Path(sys.executable).with_name("uv")
HELM = Path(sys.executable).with_name("helm")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
SERVERS = {"serve", "demo", "demo-exporter"}
"""Commands that go on until they are ended: tests below start them."""
STEP = 5
"""Seconds between two readings: the boards of a minute are enough for a cycle."""
MOST_MIB = 700
ALIASES = {"recommendations"}
WORDS = {"completion": ["bash"], "agent": ["--help"]}


@dataclass(frozen=True, slots=True)
class Outside:
    """A bare environment with the wheel, and a folder to work in."""

    python: Path
    work: Path
    environ: dict[str, str]

    def run(self, *words: str, seconds: float = 600) -> subprocess.CompletedProcess[str]:
        """What `trimtab` answers there."""
        return subprocess.run(
            [self.python.with_name("trimtab"), *words],
            cwd=self.work, env=self.environ, text=True, check=False, timeout=seconds,
            capture_output=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    """The packages that the wheel needs, as locked, and the wheel."""
    folder = tmp_path_factory.mktemp("outside")
    lock, python = folder / "bare.lock", folder / "venv/bin/python"
    assert ROOT not in folder.parents
    pip: list[str | Path] = [UV, "pip"]
    compiled: list[str | Path] = [
        "--constraint",
        ROOT / "requirements.lock",
        "--generate-hashes",
        "--quiet",
    ]
    plain: list[str | Path] = ["--no-emit-index-url", "--no-emit-find-links", "--output-file", lock]
    steps: list[list[str | Path]] = [
        [*pip, "compile", ROOT / "pyproject.toml", *compiled, *plain],
        [UV, "venv", "--quiet", "--python", sys.executable, folder / "venv"],
        [*pip, "sync", "--quiet", "--python", python, "--require-hashes", lock],
        [*pip, "install", "--quiet", "--python", python, "--no-deps", *FILES.glob("*.whl")],
    ]
    for words in steps:
        subprocess.run(words, check=True, cwd=folder)
    work = folder / "work"
    work.mkdir()
    environ = {
        "TRIMTAB_PROMETHEUS_STEP_SECONDS": str(STEP),
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
    }
    return Outside(python, work, environ)


def installed(outside: Outside) -> dict[str, str]:
    """The version of each package there, by name."""
    listing = subprocess.run(
        [UV, "pip", "list", "--format", "json", "--python", outside.python],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return {entry["name"]: entry["version"] for entry in json.loads(listing)}


def test_every_file_has_its_checksum() -> None:
    """And no other file is there."""
    lines = (FILES / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    files = {path.name: path for path in FILES.iterdir() if path.name != "SHA256SUMS"}
    assert set(files) == set(sums)
    for name, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sums[name], name
    kinds = sorted(name.partition(VERSION)[2].rpartition(".")[2] for name in files)
    assert kinds == ["gz", "json", "tgz", "whl"]


def test_the_same_source_gives_the_same_wheel(tmp_path: Path) -> None:
    """Built once more from the source file that is shipped, byte for byte."""
    (source,) = FILES.glob("*.tar.gz")
    words: list[str | Path] = [UV, "build", "--wheel", "--out-dir", tmp_path, source]
    locked: list[str | Path] = [
        "--quiet",
        "--require-hashes",
        "--build-constraints",
        ROOT / "requirements.lock",
    ]
    subprocess.run([*words, *locked], check=True, cwd=tmp_path)
    (shipped,), (made,) = FILES.glob("*.whl"), tmp_path.glob("*.whl")
    assert made.name == shipped.name
    assert made.read_bytes() == shipped.read_bytes()


def test_the_bill_names_every_package(outside: Outside, measured: Measured) -> None:
    """With its version, and hashes by which it was installed."""
    (bill,) = FILES.glob("*.cdx.json")
    components = json.loads(bill.read_text(encoding="utf-8"))["components"]
    named = {entry["name"]: entry["version"] for entry in components if entry["hashes"]}
    packages = installed(outside)
    assert packages.pop("trimtab") == VERSION
    assert {name: version for name, version in packages.items() if named.get(name) != version} == {}
    size = sum(path.lstat().st_size for path in outside.python.parents[1].rglob("*"))
    measured(f"{len(packages)} packages, {size / 2**20:.0f} MiB without extras")
    assert {"streamlit", "plotly", "prophet", "matplotlib", "reportlab", "pillow"} & {
        *packages
    } == set()
    assert size < MOST_MIB * 2**20


@pytest.mark.parametrize("minor", range(28, 38))
def test_the_chart_renders(minor: int) -> None:
    """For each Kubernetes of today, with the image of its own version."""
    (chart,) = FILES.glob("trimtab-chart-*.tgz")
    words: list[str | Path] = [HELM, "template", "trimtab", chart, "--kube-version", f"1.{minor}.0"]
    rendered = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert re.search(rf"image: \S*trimtab:{re.escape(VERSION)}\b", rendered)


def test_the_demo_runs_once(outside: Outside) -> None:
    """It ends with findings, without a cluster, a GPU or an extra."""
    done = outside.run("demo", "--once")
    assert done.returncode == 0, done.stderr
    rows = json.loads(
        outside.run("--store", _demo_store(outside), "findings", "list", "--format", "json").stdout
    )
    assert rows


def _demo_store(outside: Outside) -> str:
    (store,) = (Path(outside.environ["HOME"]) / ".local/state/trimtab").glob("demo*.duckdb")
    return f"duckdb:///{store}"


@pytest.fixture
def prometheus(outside: Outside, tmp_path: Path) -> Iterator[str]:
    """A real Prometheus that scrapes the simulated fleet of the installed program."""
    port = free_port()
    words = ["demo-exporter", "--port", str(port), "--nodes", "2"]
    with subprocess.Popen(
        [outside.python.with_name("trimtab"), *words],
        cwd=outside.work, env=outside.environ,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as exporter:  # fmt: skip
        try:
            with running_prometheus(tmp_path, scrape=f"127.0.0.1:{port}") as url:
                _wait_for_boards(url)
                yield url
        finally:
            exporter.terminate()


def _wait_for_boards(url: str) -> None:
    for _attempt in range(900):
        query = f"{url}/api/v1/query?query=count(DCGM_FI_DEV_GPU_UTIL%20offset%20{3 * STEP}s)"
        with urllib.request.urlopen(query, timeout=30) as answer:
            if json.load(answer)["data"]["result"]:
                return
        time.sleep(0.2)
    raise AssertionError("no board was scraped in 180 s")


def test_a_cycle_reads_a_real_prometheus(outside: Outside, prometheus: str) -> None:
    """Doctor finds it, and the boards that it scraped are known afterwards."""
    told = outside.run("doctor", "--prometheus", prometheus)
    assert "Traceback" not in told.stderr
    assert "prometheus" in told.stdout.lower()
    done = outside.run("cycle", "--prometheus", prometheus, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(outside.run("gpus", "--format", "json").stdout)


def commands() -> list[str]:
    """Every command that ends by itself."""
    (choice,) = build_parser()._subparsers._group_actions  # type: ignore[union-attr]
    return sorted(set(choice.choices or ()) - SERVERS - ALIASES)


@pytest.mark.parametrize("name", commands())
def test_a_command_gives_a_result_or_a_sentence(name: str, outside: Outside) -> None:
    """As somebody types it who has just installed it: no settings, no store, no extra."""
    done = outside.run(name, *WORDS.get(name, []))
    assert done.returncode in (0, 1, 2, 3), done.stderr
    assert "Traceback" not in done.stderr
    assert (done.stdout + done.stderr).strip()
    assert done.returncode == 0 or len(done.stderr.strip()) > 20 or done.stdout.strip()


@contextmanager
def served(outside: Outside, log: Path) -> Iterator[str]:
    """The address of a server there, on the demo's store."""
    port = free_port()
    words = ["--store", _demo_store(outside), "serve", "--port", str(port)]
    with (
        log.open("wb") as told,
        subprocess.Popen(
            [outside.python.with_name("trimtab"), *words],
            cwd=outside.work, env=outside.environ, stdout=told, stderr=told,
        ) as server,
    ):  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(120)


def answer(address: str, attempts: int = 900) -> tuple[int, str]:
    """Status and text, once somebody listens there."""
    for _attempt in range(attempts):
        try:
            with urllib.request.urlopen(address, timeout=60) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError(f"nobody listens at {address}")


def test_without_pages_the_api_answers(outside: Outside, tmp_path: Path) -> None:
    """And metrics; a page's address says that there is none, and the log how to add it."""
    with served(outside, tmp_path / "log") as address:
        assert answer(f"{address}/livez") == (200, "ok\n")
        status, text = answer(f"{address}/api/v1/jobs?limit=1")
        assert (status, bool(json.loads(text)["items"])) == (200, True)
        assert "trimtab_" in answer(f"{address}/metrics")[1]
        assert "its pages are not installed" in answer(f"{address}/")[1]
        assert answer(f"{address}/findings")[0] == 404
    assert "Install the libraries of the extra 'pages': pip" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    "words",
    [("demo",), ("report", "weekly", "--format", "pdf"), ("report", "weekly", "--format", "html")],
    ids=" ".join,
)
def test_what_needs_pages_says_so(words: tuple[str, ...], outside: Outside) -> None:
    """In one sentence, with the command that adds them."""
    done = outside.run("--store", _demo_store(outside), *words)
    assert done.returncode in (1, 2)
    assert "Install the libraries of the extra 'pages': pip" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_named_command_adds_the_pages(
    outside: Outside, tmp_path: Path, measured: Measured
) -> None:
    """As the sentence says, held to the locked versions; then a page and a PDF are there."""
    said = outside.run("demo").stderr.partition("'pages': ")[2]
    pinned = re.findall(r"^\S+==\S+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (tmp_path / "pinned.txt").write_text("\n".join(pinned), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", *shlex.split(said)],
        check=True, cwd=tmp_path, env=os.environ | {"PIP_CONSTRAINT": str(tmp_path / "pinned.txt")},
    )  # fmt: skip
    began = time.monotonic()
    with served(outside, tmp_path / "log") as address:
        status, text = answer(f"{address}/")
    assert (status, "<html" in text) == (200, True)
    measured(f"first page after {time.monotonic() - began:.1f} s by the clock")
    words = ["report", "weekly", "--format", "pdf", "--out", "week.pdf"]
    done = outside.run("--store", _demo_store(outside), *words)
    assert done.returncode in (0, 3), done.stderr
    assert (outside.work / "week.pdf").read_bytes().startswith(b"%PDF")
