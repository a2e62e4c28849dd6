"""A release before it is made: versions that agree, notes, and workflows that a linter passes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def release(*words: str) -> subprocess.CompletedProcess[str]:
    """What deploy/release.py answers."""
    return subprocess.run(
        [sys.executable, "deploy/release.py", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("tag", ["v9.9.9", "0.1.0", "v0.1.0rc1", "v"])
def test_a_tag_of_another_version_builds_nothing(tag: str) -> None:
    """Both versions are named."""
    done = release("build", "--tag", tag)
    assert done.returncode == 1
    assert "pyproject.toml has " in done.stderr
    assert "the tag has " in done.stderr


def test_a_version_that_has_no_date_is_not_released() -> None:
    """The changelog says so of the version that is being made; the notes are its part."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, _, rest = changelog.partition("\n## ")[2].partition("\n")[0].partition(" ")
    done = release("build", "--tag", f"v{version}")
    if rest == "(not released yet)":
        assert (done.returncode, "Give it its date" in done.stderr) == (1, True)
    else:
        assert done.returncode == 0, done.stderr
    notes = release("notes", f"v{version}").stdout
    assert len(notes) > 100
    assert notes in changelog
    assert release("notes", "v9.9.9").returncode == 1


def test_a_linter_of_workflows_has_no_complaint() -> None:
    """zizmor, of every severity; it looks nothing up outside."""
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run(
        [zizmor, "--offline", "--quiet", "--format", "json", ".github"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [(entry["ident"], entry["desc"]) for entry in json.loads(done.stdout)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_rights_for_what_it_does_alone(path: Path) -> None:
    """It starts with none but reading, each action is a commit, and each job ends."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            _, _, commit = step.get("uses", f"none@{'0' * 40}").partition("@")
            assert len(commit) == 40
            assert set(commit) <= set("0123456789abcdef")
