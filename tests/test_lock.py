"""The locks name every dependency by hash, and no place to fetch it from."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = (
    "requirements.lock",
    "deploy/requirements.lock",
    "deploy/installers.lock",
    "benchmarks/peers.lock",
)
REQUIREMENT = re.compile(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+) \\$", re.MULTILINE)


def pinned(lock: str) -> dict[str, str]:
    """Name to version."""
    return dict(REQUIREMENT.findall((ROOT / lock).read_text(encoding="utf-8")))


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_has_a_hash(lock: str) -> None:
    """A lock holds pinned names, each followed by at least one SHA-256, and nothing else."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    entries = re.split(r"(?m)^(?=\S)", text)[1:]
    entry = re.compile(
        r"[a-z0-9-]+(\[[a-z,]+\])?==\S+ \\\n( {4}--hash=sha256:[0-9a-f]{64}( \\)?\n)+"
    )
    assert entries
    assert [item[:80] for item in entries if not entry.fullmatch(item)] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_holds_an_address(lock: str) -> None:
    """A lock is the same wherever it was made."""
    assert "://" not in (ROOT / lock).read_text(encoding="utf-8")


def test_declared_dependencies_are_locked() -> None:
    """Every dependency of pyproject.toml is in requirements.lock, except those of [ray]."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [
        *project["dependencies"],
        *(entry for extra in ("dev", "kubernetes", "postgres") for entry in extras[extra]),
    ]
    names = {normal(re.split(r"[\[<>=!~; ]", entry)[0]) for entry in declared}
    assert names - pinned("requirements.lock").keys() == set()


@pytest.mark.parametrize("recipe", ["Makefile", "Dockerfile"])
def test_nothing_is_installed_but_by_hash(recipe: str) -> None:
    """What installs everything else is checked as well: pip itself and uv."""
    text = (ROOT / recipe).read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [
        line
        for line in re.split(r"\n|&&|;", text)
        if re.search(r"pip (install|sync)|uv build", line) and "echo" not in line
    ]
    assert len(installs) >= 3
    for line in installs:
        # Trimtab itself, without what it needs.
        ours = "--no-deps" in line and ("--editable ." in line or "/dist/*.whl" in line)
        assert "--require-hashes" in line or ours, line
    assert set(pinned("deploy/installers.lock")) == {"pip", "uv"}


def test_the_image_runs_what_was_tested() -> None:
    """The image's lock is a part of the tested one, version for version."""
    tested, image = pinned("requirements.lock"), pinned("deploy/requirements.lock")
    assert image.items() <= tested.items()
    assert not {"pytest", "mypy", "playwright"} & image.keys()
