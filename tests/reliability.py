"""The table of faults, written from the tests that were just run (`make reliability`).

A test that measures something says so with the fixture `measured`.
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

Measured = Callable[[str], None]
FAULTS = Path(__file__).with_name("faults.toml")
CAMPAIGNS = Path(__file__).parent / "outsiders" / "campaigns.toml"
STAND_INS = frozenset({"fake", "newer", "library", "play"})
"""Fixtures that stand in for a system which cannot run here."""
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
_HEAD = """# Faults, and what shows that Trimtab survives them

Written by `make reliability` from runs of the tests named;
[faults.toml](../tests/faults.toml) says which tests belong
to which fault. *Held*: every test of the row passed in its last run. Figures are those that the
tests themselves report. † rests on a stand-in, for what cannot run here: a Kubernetes API newer
than 1.20, held to the schemas that 1.33 to 1.37 publish and to recorded refusals; an NVML library
that answers as recorded.

| | fault | held to | tests | figures | |
|---:|---|---|---|---|---|
"""

_CAMPAIGNS_HEAD = """
## Campaigns of drawn scenarios

Drawn from a seed, judged by the system itself or an exact model, shrunk where they fail. Written
down in [campaigns.toml](../tests/outsiders/campaigns.toml) after each whole run; `make test-all`
runs 300 of each.

| campaign | seed | run | failed | mended |
|---|---:|---:|---:|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row of the table: what may happen, what is promised, which tests show it."""

    number: int
    what: str
    aim: str
    tests: tuple[str, ...]
    open: str = ""


def faults() -> tuple[Fault, ...]:
    """Read the faults and their tests."""
    rows = tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]
    return tuple(Fault(**row | {"tests": tuple(row["tests"])}) for row in rows)


@dataclass(eq=False)
class ReliabilityReport:
    """A pytest plugin that writes the page; with `alone` no other tests are run."""

    alone: bool = True
    outcomes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    figures: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out every test that belongs to no fault."""
        if not self.alone:
            return
        wanted = {name for fault in faults() for name in fault.tests}
        chosen = [item for item in items if test_of(item.nodeid) in wanted]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test ended and what it measured."""
        if report.when == "call" or report.outcome != "passed":
            name = test_of(report.nodeid)
            self.outcomes[name].append(report.outcome)
            found = [str(said) for key, said in report.user_properties if key == "measured"]
            self.figures[name].extend(found)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page; a worker process saw its own tests alone and leaves it to the first."""
        if hasattr(session.config, "workerinput"):
            return
        rows = "".join(self._row(fault) for fault in faults())
        PAGE.write_text(_HEAD + rows + campaigns_text(), encoding="utf-8")

    def _row(self, fault: Fault) -> str:
        names = "<br>".join(f"`{name}`{mark_of(name)}{self._count(name)}" for name in fault.tests)
        said = dict.fromkeys(text for name in fault.tests for text in self.figures[name])
        cells = (fault.number, fault.what, fault.aim, names, "; ".join(said), self._held(fault))
        return "| " + " | ".join(str(cell) for cell in cells) + " |\n"

    def _count(self, name: str) -> str:
        cases = len(self.outcomes[name])
        return f" × {cases}" if cases > 1 else ""

    def _held(self, fault: Fault) -> str:
        found = {end for name in fault.tests for end in self.outcomes[name] or ["not run"]}
        verdict = "held" if found == {"passed"} else ", ".join(sorted(found)) or "open"
        return f"{verdict}; open: {fault.open}" if fault.open and fault.tests else verdict


def campaigns_text() -> str:
    """Return the section of the page on campaigns of drawn scenarios."""
    rows = tomllib.loads(CAMPAIGNS.read_text(encoding="utf-8"))["campaign"]
    fields = ("name", "seed", "run", "failed", "mended")
    lines = ("| " + " | ".join(str(row[field]) for field in fields) + " |\n" for row in rows)
    return _CAMPAIGNS_HEAD + "".join(lines)


def mark_of(name: str) -> str:
    """Return a dagger for a test that asks for a stand-in, else nothing."""
    file, _, function = name.partition("::")
    tree = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
    asked = {
        argument.arg
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == function
        for argument in node.args.args
    }
    return " †" if asked & STAND_INS else ""


def test_of(node: str) -> str:
    """Return the name of a test without its parameters, from the folder of the tests on."""
    return node.partition("[")[0].removeprefix("tests/")
