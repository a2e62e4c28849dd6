"""What the tests of a folder share ends with them, and begins anew where tests come back."""

import pytest

pytest_plugins = ["pytester"]
CONFTEST = """
import contextlib
from pathlib import Path

import pytest

@pytest.fixture(scope="session")
def shared(folder_ends, note):
    @contextlib.contextmanager
    def running():
        note("begun")
        yield
        note("ended")
    return folder_ends.of(Path(__file__).parent).enter_context(running())
"""
ROOT = """
from pathlib import Path

import pytest
from beds.folder_ends import FolderEnds

@pytest.fixture(scope="session")
def folder_ends(pytestconfig):
    ends = FolderEnds()
    pytestconfig.pluginmanager.register(ends)
    yield ends
    ends.close()

@pytest.fixture(scope="session")
def note():
    def said(word):
        with Path(__file__).with_name("events").open("a") as file:
            file.write(word + " ")
    return said
"""


def test_what_a_folder_shares_ends_with_its_tests_and_begins_anew(
    pytester: pytest.Pytester,
) -> None:
    """Of two folders, one is left and entered again: nothing is used after its end."""
    pytester.makeconftest(ROOT)
    for name in ("first", "other"):
        pytester.mkdir(name)
    (pytester.path / "first" / "conftest.py").write_text(CONFTEST)
    uses = "def test_it(shared, note):\n    note('used')\n"
    other = "def test_it(note):\n    note('other')\n"
    texts = {
        "first/test_a": uses,
        "first/test_b": uses,
        "other/test_d": other,
        "first/test_c": uses,
    }
    for path, text in texts.items():
        (pytester.path / f"{path}.py").write_text(text)
    order = [f"{path}.py" for path in texts]
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *order)
    result.assert_outcomes(passed=4)
    events = (pytester.path / "events").read_text()
    assert events == "begun used used ended other begun used ended "
