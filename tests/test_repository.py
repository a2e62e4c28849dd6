"""The shape of the repository: small files with telling names, and no address that leaks."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("data", "collectors", "forecasting", "planner", "dashboard")
MAX_FILE = 600
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
PLACEHOLDER_HOSTS = re.compile(
    r"(127\.\d+\.\d+\.\d+|0\.0\.0\.0|localhost|[a-z0-9-]+|.*\.(example|invalid|test|svc)|"
    r"(.*\.)?example\.(com|org|net)|www\.w3\.org|schemas\.openid\.net)"
)
"""Loopback, services of a compose file or a cluster, reserved example names, name spaces."""


def tracked_files() -> list[Path]:
    """Every file that git would carry to another machine."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def texts() -> list[tuple[str, str]]:
    """Path and content of every tracked text file."""
    found = []
    for path in tracked_files():
        body = path.read_bytes()
        if b"\0" not in body:
            found.append((str(path.relative_to(ROOT)), body.decode()))
    return found


def test_files_are_small() -> None:
    """No Python file of the five packages, the tests or the benchmarks has more than 600 lines."""
    long = {
        str(path.relative_to(ROOT)): lines
        for package in (*PACKAGES, "tests", "benchmarks")
        for path in sorted((ROOT / package).rglob("*.py"))
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE
    }
    assert long == {}, f"split each by what it holds, at most {MAX_FILE} lines"


def test_names_say_what_is_inside() -> None:
    """No Python file has a name that fits anything."""
    vague = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.suffix == ".py" and path.stem in VAGUE
    ]
    assert vague == []


def test_tests_are_no_package() -> None:
    """Tests are collected by importlib; an __init__.py under tests would change their names."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_addresses_in_code_and_configuration_are_placeholders() -> None:
    """Outside of documents, an address names loopback, a service or a reserved example host."""
    foreign = [
        f"{name}: {host}"
        for name, text in texts()
        if not name.endswith((".md", ".csv", ".j2")) and name != "LICENSE"
        for host in re.findall(r"https?://(?:[^\s/@\"']*@)?([A-Za-z0-9.-]+)", text)
        if not PLACEHOLDER_HOSTS.fullmatch(host.lower().rstrip("."))
    ]
    assert foreign == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"\bp[y]pi\.", r"pyth[o]nhosted", r"\bind[e]x-url\s*[= ]\s*\S*://", r"//[\w.-]*mirr[o]r",
        r"artif[a]ctory", r"/h[o]me/\w", r"/r[o]ot/\w", r"/w[o]rk/\w",
    ],
)  # fmt: skip
def test_no_file_names_an_index_or_a_machine(pattern: str) -> None:
    """No package index, no mirror and no folder of somebody's machine stands in any file."""
    assert [name for name, text in texts() if re.search(pattern, text, re.IGNORECASE)] == []
