"""`make check` runs the tests nearest to a change, by the imports of this repository."""

import subprocess
from pathlib import Path

import nearest
import pytest


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """What the Python files that git knows import."""
    return nearest.imports(path for path in nearest.git("ls-files", "*.py"))


@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("data/catalogue/grid_forecast.py", "tests/data/test_grid_forecast.py"),
        ("dashboard/apply/worker/worker.py", "tests/dashboard/test_apply_worker.py"),
        ("data/store/record/last_write.py", "tests/data/test_backup.py"),
        ("tests/beds/git_shop.py", "tests/dashboard/apply_git/test_git_requests.py"),
        ("tests/dashboard/apply_git/conftest.py", "tests/dashboard/apply_git/test_git_story.py"),
    ],
)
def test_a_change_is_checked_by_tests_that_import_it(
    imported: dict[str, set[str]], changed: str, test: str
) -> None:
    """Directly, through a bed, or by the fixtures of their folder; at most so many."""
    chosen, reached = nearest.nearest([changed], imported)
    assert test in chosen
    assert len(chosen) <= nearest.MOST + len(nearest.OF_THE_REPOSITORY)
    assert reached >= len(set(chosen) - nearest.OF_THE_REPOSITORY)


def test_every_test_that_changed_is_run(imported: dict[str, set[str]]) -> None:
    """However many they are; those that need a server are left to `make test`."""
    tests = {path for path in imported if path.startswith("tests/data/") and nearest.is_test(path)}
    assert len(tests) > nearest.MOST
    chosen, _reached = nearest.nearest(tests, imported)
    assert set(chosen) >= {path for path in tests if nearest.needs_no_server(path)}
    assert (
        "tests/browser/test_views.py"
        not in nearest.nearest(["tests/browser/test_views.py"], imported)[0]
    )


def test_a_document_is_checked_by_the_tests_of_the_repository(
    imported: dict[str, set[str]],
) -> None:
    """They read every file; no import leads to a page."""
    chosen, reached = nearest.nearest(["docs/forecasting.md"], imported)
    assert set(chosen) == nearest.OF_THE_REPOSITORY
    assert reached == 0
    assert all((nearest.ROOT / path).is_file() for path in chosen)


def test_what_changed_is_since_the_branch_began_or_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Committed or not, and files that git does not know yet; where nothing did, it says so."""
    monkeypatch.setattr(nearest, "ROOT", tmp_path)

    def commit(name: str) -> None:
        (tmp_path / name).touch()
        git("add", name)
        git("-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", name)

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    commit("first.py")
    assert nearest.changed_files() == set()
    commit("second.py")
    capsys.readouterr()
    assert nearest.changed_files() == {"second.py"}
    said = capsys.readouterr().err
    assert said == "check: nothing differs from the last commit: testing the last commit\n"
    (tmp_path / "first.py").write_text("changed\n")
    assert nearest.changed_files() == {"first.py"}
    git("update-ref", "refs/remotes/origin/main", "HEAD^")
    (tmp_path / "third.py").touch()
    assert nearest.changed_files() == {"first.py", "second.py", "third.py"}
    assert capsys.readouterr().err == ""
