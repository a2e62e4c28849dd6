"""The table of faults names tests that exist, and the page is the table's."""

import ast
from pathlib import Path

import pytest
from reliability import PAGE, Fault, campaigns_text, faults, mark_of

TESTS = Path(__file__).parent


def test_every_fault_is_there_once() -> None:
    """The faults are numbered in order, without a gap."""
    assert [fault.number for fault in faults()] == list(range(1, len(faults()) + 1))


@pytest.mark.parametrize("fault", faults(), ids=lambda entry: str(entry.number))
def test_a_fault_names_tests_that_exist(fault: Fault) -> None:
    """Every test named is a function of its file; a fault without a test says what is open."""
    for name in fault.tests:
        file, _, function = name.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert function in {entry.name for entry in tree.body if isinstance(entry, ast.FunctionDef)}
    assert fault.tests or fault.open


def test_what_rests_on_a_stand_in_is_marked() -> None:
    """A test of a server that cannot run here carries a dagger; one of a real server does not."""
    folder = "dashboard/kubernetes_apply"
    assert mark_of(f"{folder}/test_mutations.py::test_a_mutated_target_is_always_refused") == " †"
    assert (
        mark_of(f"{folder}/test_rollouts.py::test_a_quota_that_forbids_the_pods_is_failing") == ""
    )


def test_the_page_is_of_this_table() -> None:
    """Every fault and every test of it stand on the page: `make reliability` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    for fault in faults():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {fault.number} |")]
        assert all(f"`{name}`" in row for name in fault.tests)
    assert text.endswith(campaigns_text())
