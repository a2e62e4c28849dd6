"""The table of faults names tests that exist, and the page is the table's."""

import ast
from itertools import groupby
from pathlib import Path

import pytest
from reliability import PAGE, Fault, campaigns_text, faults, line_start, mark_of, page_text

TESTS = Path(__file__).parent


def test_every_fault_is_there_once() -> None:
    """No fault is named twice, and the faults of an area stand together."""
    rows = faults()
    assert len({fault.what for fault in rows}) == len(rows)
    assert len([area for area, _ in groupby(rows, key=lambda fault: fault.area)]) == len(
        {fault.area for fault in rows}
    )


@pytest.mark.parametrize("fault", faults(), ids=lambda entry: str(entry.what))
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
    """Every fault stands on the page with its promise: `make reliability` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    for fault in faults():
        assert text.count(f"\n{line_start(fault)}") == 1
        assert not fault.open or f"* {fault.what}: {fault.open}\n" in text
    assert text.endswith(campaigns_text())


def test_a_line_says_that_its_tests_failed_or_did_not_run() -> None:
    """A line without a note means that every test of it passed."""
    fault = faults()[0]
    passed = {name: ["passed"] for name in fault.tests}
    assert f"\n{line_start(fault)}\n" in page_text(passed, {})
    failed = passed | {fault.tests[0]: ["passed", "failed"]}
    assert f"\n{line_start(fault)} (**failed, passed**)\n" in page_text(failed, {})
    assert f"\n{line_start(fault)} (**not run**)\n" in page_text({}, {})
