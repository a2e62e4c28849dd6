"""The page of faults, written from the tests that were just run (`make reliability`).

A test that measures something says so with the fixture `measured`.
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

Measured = Callable[[str], None]
FAULTS = Path(__file__).with_name("faults.toml")
ATTACK = Path(__file__).with_name("attack.toml")
CAMPAIGNS = Path(__file__).parent / "outsiders" / "campaigns.toml"
STAND_INS = frozenset({"fake", "newer", "library", "play"})
"""Fixtures that stand in for a system which cannot run here."""
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
_HEAD = """# Tested faults

This page lists faults and how Trimtab behaves under each. `make reliability` runs the tests that
[faults.toml](../tests/faults.toml) names and writes this page; a line whose tests did not all pass
says so. † marks tests that use a stand-in: a Kubernetes API newer than 1.20, held to the schemas of
1.33 to 1.37 and to recorded refusals, or an NVML library with recorded answers.
"""

_CAMPAIGNS_HEAD = """
## Campaigns of drawn scenarios

Scenarios are drawn from a seed and judged by the system itself (Slurm 22.05, Kubernetes 1.20), by
an exact model, or by the truth that was drawn. `make test-all` runs 300 of each kind. *Failed*
counts broken promises, mistakes of the judge, and waits outside their 80 % band, of which a fifth
is expected. [campaigns.toml](../tests/outsiders/campaigns.toml) has each run, its seed, its
proposals, and what was fixed.

| campaign | runs | scenarios | failed | failed in the last run |
|---|---:|---:|---:|---:|
"""

_ATTACK_HEAD = """
## Attacks on started servers

In November 2026 three testers attacked started servers; Git and mail servers, power agents, forged
button messages and several web processes were attacked with knowledge of the code.
[attack.toml](../tests/attack.toml) has {attacks} attacks and their outcomes. {defects} found a
defect; each is fixed, and a test holds the fix. Limits under attack:

* 2,000 connections with half requests: a stop answers within 0.4 s, new connections wait 1 to 7 s.
* 100 pages opened at once on two cores: a stop takes up to 9.7 s by HTTP, and no time by file.
* `fsync` takes 5 s: probes, pages and a stop take up to 0.6 s, a decision 5 s, a resume 45 s.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One line of the page: what may happen, what is promised, which tests show it."""

    area: str
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
        text = page_text(self.outcomes, self.figures)
        PAGE.write_text(text, encoding="utf-8")


def page_text(outcomes: Mapping[str, list[str]], figures: Mapping[str, list[str]]) -> str:
    """Return the page for the outcomes and the figures of tests by name."""
    areas = dict.fromkeys(fault.area for fault in faults())
    lists = (
        f"\n## {area}\n\n"
        + "".join(
            f"{line_start(fault)}{_failure(fault, outcomes)}\n"
            for fault in faults()
            if fault.area == area
        )
        for area in areas
    )
    gaps = "".join(f"* {fault.what}: {fault.open}\n" for fault in faults() if fault.open)
    text = _HEAD + "".join(lists) + "\n## Not tested\n\n" + gaps
    return (
        text
        + "\n## Figures of the tests\n\n"
        + _figures_text(figures)
        + attack_text()
        + campaigns_text()
    )


def line_start(fault: Fault) -> str:
    """Return a fault's line up to the place where a failure of its tests is noted."""
    mark = " †" if any(mark_of(name) for name in fault.tests) else ""
    return f"* **{fault.what[0].upper()}{fault.what[1:]}:** {fault.aim}{mark}"


def _failure(fault: Fault, outcomes: Mapping[str, list[str]]) -> str:
    ends = {end for name in fault.tests for end in outcomes.get(name) or ["not run"]}
    return "" if ends <= {"passed"} else f" (**{', '.join(sorted(ends))}**)"


def _figures_text(figures: Mapping[str, list[str]]) -> str:
    """Return a line for each fault; a test stands once, and campaigns have a table of their own."""
    lines, seen = "", set[str]()
    for fault in faults():
        own = [name for name in fault.tests if not name.startswith("outsiders/")]
        names = [name for name in own if name not in seen]
        seen.update(names)
        texts = dict.fromkeys(text for name in names for text in figures.get(name, ()))
        lines += f"* {fault.what}: {'; '.join(texts)}\n" if texts else ""
    return lines


def attack_text() -> str:
    """Return the section of the page on attacks on started servers."""
    table = tomllib.loads(ATTACK.read_text(encoding="utf-8"))["tried"]
    outcomes = [outcome for kind in table for _attack, outcome in kind["rows"]]
    defects = sum("**mended**" in outcome for outcome in outcomes)
    return _ATTACK_HEAD.format(attacks=len(outcomes), defects=defects)


def campaigns_text() -> str:
    """Return the section of the page on campaigns of drawn scenarios, a row for each kind."""
    rows = tomllib.loads(CAMPAIGNS.read_text(encoding="utf-8"))["campaign"]
    lines = ""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        runs = [row for row in rows if row["kind"] == kind]
        scenarios, failed = (sum(row[field] for row in runs) for field in ("run", "failed"))
        cells = (kind, len(runs), scenarios, failed, runs[-1]["failed"])
        lines += "| " + " | ".join(str(cell) for cell in cells) + " |\n"
    return _CAMPAIGNS_HEAD + lines


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
