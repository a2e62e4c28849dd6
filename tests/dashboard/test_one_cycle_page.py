"""docs/one-cycle.md names the steps of a cycle as its code takes them."""

import ast
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dashboard.cycle import planning_facts, run_cycle

PAGE = Path(__file__).parents[2] / "docs" / "one-cycle.md"
_STEP = re.compile(r"^\| [^|]+ \| `([\w.]+)` \|", re.MULTILINE)


def steps(after: str) -> list[str]:
    """Return the functions of the first table after a text of the page."""
    table = PAGE.read_text(encoding="utf-8").split(after, 1)[1].split("\n\n")
    return _STEP.findall(next(part for part in table if part.startswith("| step |")))


def resolved(name: str) -> Any:
    """Return what a dotted name of the page names."""
    module, rest = name, []
    while True:
        try:
            target = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for part in rest:
        target = getattr(target, part)
    return target


def calls(functions: tuple[Callable[..., Any], ...]) -> list[str]:
    """Return the names that these functions call, in the order of their text."""
    trees = [ast.parse(inspect.getsource(function)) for function in functions]
    names = []
    for tree in trees:
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        nodes.sort(key=lambda node: (node.lineno, node.col_offset))
        names += [ast.unparse(node.func).rpartition(".")[2] for node in nodes]
    return names


@pytest.mark.parametrize(
    ("after", "functions"),
    [
        ("One cycle", (run_cycle._collected, run_cycle._planned, run_cycle.run_cycle)),
        ("`read_facts` in turn", (planning_facts.read_facts, planning_facts._basis)),
        ("`plan_from` in turn", (planning_facts.plan_from,)),
    ],
)
def test_the_page_names_the_steps_that_the_code_takes(
    after: str, functions: tuple[Callable[..., Any], ...]
) -> None:
    """Each exists under its name; what a cycle itself calls stands in its order."""
    named = steps(after)
    assert len(named) >= 3
    assert all(callable(resolved(name)) for name in named)
    call_names = calls(functions)
    places = [
        call_names.index(step) for name in named if (step := name.rpartition(".")[2]) in call_names
    ]
    if after == "One cycle":
        assert len(places) == len(named)
        assert places == sorted(places)


def test_a_cycle_fits_a_page() -> None:
    """A reader sees all of its steps at once."""
    assert len(inspect.getsource(run_cycle.run_cycle).splitlines()) <= 80
