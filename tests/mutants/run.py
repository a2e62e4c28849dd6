"""Seeded mutants of core logic, each judged by the tests nearest to it (`make mutants`).

cosmic-ray finds the mutants, makes them and records what became of them; `modules.toml` says which
modules are mutated, which tests judge them and how many mutants of each group are drawn. The work
is done in a copy of the tree under `.mutants/`, and a session goes on where it was stopped.

Tests start in forks of a process that has loaded the libraries (and none of our modules): a mutant
takes what its tests take, without the seconds that pandas, numba and the like need to load.
"""
# ruff: noqa: T201 - a program that prints its table

import argparse
import contextlib
import importlib
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cosmic_ray.mutating
import duckdb_sqlalchemy  # noqa: F401 - loaded once, before the forks
import hypothesis.extra.numpy  # noqa: F401
import numba  # noqa: F401
import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pytest
import scipy.optimize
import scipy.stats  # noqa: F401
from cosmic_ray.commands import init
from cosmic_ray.plugins import OPERATOR_PROVIDERS
from cosmic_ray.work_db import WorkDB, WorkResultStorage, use_db
from cosmic_ray.work_item import TestOutcome, WorkItem

sys.path.insert(0, str(Path(__file__).parent))
from operators import OurOperators

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".mutants"
TREE = FOLDER / "tree"
LEFT_OUT = re.compile(
    r"BitOr|BitXor|BitAnd|Shift|_Pow$|_Mod$|_FloorDiv$|_Is|Decorator|Exception|NoOp"
)
"""Operators whose mutants die of a TypeError or stand in annotations: they judge no test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Modules with the tests that judge them, and how many mutants of them are drawn."""

    name: str
    modules: tuple[str, ...]
    tests: str
    count: int
    loaded: tuple[str, ...] = ()


def groups(only: str) -> Iterator[Group]:
    """Yield the groups of the table, those named in `only` when it is not empty."""
    table = tomllib.loads((Path(__file__).parent / "modules.toml").read_text(encoding="utf-8"))
    for row in table["group"]:
        if not only or row["name"] in only.split(","):
            yield Group(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})


def copy_tree() -> None:
    """Copy what git knows or would add, so that nothing is mutated where people work."""
    asked = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(TREE, ignore_errors=True)
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name)


def drawn(group: Group, seed: int) -> list[WorkItem]:
    """Return the group's mutants of this seed, named by where they are."""
    paths = [Path(found) for name in group.modules for found in sorted(map(str, Path().glob(name)))]
    with tempfile.TemporaryDirectory() as folder, use_db(f"{folder}/all.sqlite") as everything:
        init(paths, everything, {})
        specs = [item.mutations[0] for item in everything.work_items]
    specs = [spec for spec in specs if not LEFT_OUT.search(spec.operator_name)]
    specs.sort(key=lambda spec: (str(spec.module_path), spec.operator_name, spec.occurrence))
    chosen = random.Random(f"{seed} {group.name}").sample(specs, min(group.count, len(specs)))  # noqa: S311
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path in paths}
    return [
        WorkItem.single(
            f"{spec.module_path}:{spec.start_pos[0]} {spec.operator_name}#{spec.occurrence}", spec
        )
        for spec in chosen
        # Whether a record is frozen or has slots is no behaviour.
        if not lines[spec.module_path][spec.start_pos[0] - 1].startswith("@dataclass")
    ]


def forked_tests(command: str, cpu_seconds: float) -> tuple[TestOutcome, str]:
    """Run pytest with these arguments in a fork; a mutant whose tests take too long is killed."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if not child:
            _run_pytest(command, said.fileno(), round(cpu_seconds))
        _, status, used = os.wait4(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        said.seek(0)
        output = said.read().decode(errors="replace")[-4_000:]
    outcome = TestOutcome.KILLED if status else TestOutcome.SURVIVED
    return outcome, f"{output}\nCPU seconds: {used.ru_utime + used.ru_stime:.1f}"


def _run_pytest(command: str, output: int, cpu_seconds: int) -> None:
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        for number in (1, 2):
            os.dup2(output, number)
        sys.path.insert(0, str(TREE))
        code = pytest.main(shlex.split(command))
    finally:
        os._exit(int(code))


def command_of(group: Group) -> str:
    """Return pytest's arguments."""
    plugins = "-p no:cacheprovider -p pytest_timeout -p _hypothesis_pytestplugin"
    return f"-x -q {plugins} {group.tests}"


def judge(group: Group, session: WorkDB, seed: int, each: int, again: set[str]) -> None:
    """Judge the mutants of a group that have no result yet, at most `each` (0: all).

    Those of `again` alone where it names any.

    Errors: SystemExit when its tests fail without a mutant.
    """
    for module in group.loaded:
        importlib.import_module(module)
    if "planner.solver.warm_up" in group.loaded:
        sys.modules["planner.solver.warm_up"].warm_up()
    items = drawn(group, seed)
    for name in {str(item.mutations[0].module_path) for item in items}:
        if name.removesuffix(".py").replace("/", ".") in sys.modules:
            raise SystemExit(f"{group.name}: `loaded` imports {name}, whose mutants no test sees")
    known = {item.job_id for item in session.work_items}
    session.add_work_items(item for item in items if item.job_id not in known)
    done = dict(session.results)
    waiting = [item for item in items if item.job_id not in done]
    waiting = [item for item in waiting if not again or item.job_id in again][: each or None]
    if not waiting:
        return
    outcome, output = forked_tests(command_of(group), 1_800)
    if outcome is not TestOutcome.SURVIVED:
        raise SystemExit(f"{group.name}: its tests fail without a mutant\n{output}")
    seconds = float(output.rsplit(maxsplit=1)[-1])
    print(f"{group.name}: {len(waiting)} mutants, tests take {seconds} CPU seconds", flush=True)
    for item in waiting:
        result = cosmic_ray.mutating.mutate_and_test(
            item.mutations, command_of(group), 5 + 3 * seconds
        )
        session.set_result(item.job_id, result)
        if not result.is_killed:
            print(f"  survived: {item.job_id}\n{changed_lines(result.diff)}", flush=True)


def changed_lines(diff: str | None) -> str:
    """Return the lines that differ."""
    lines = [line for line in (diff or "").splitlines()[3:] if line[:1] in "+-"]
    return "\n".join(f"    {line}" for line in lines)


def summary(chosen: list[Group], session: WorkDB, seed: int) -> str:
    """Return the table of groups as Markdown."""
    results = dict(session.results)
    lines = ["| group | drawn | ran | killed | survived |", "|---|---:|---:|---:|---:|"]
    total = [0, 0, 0]
    for group in chosen:
        items = drawn(group, seed)
        ran = [results[item.job_id] for item in items if item.job_id in results]
        killed = sum(result.is_killed for result in ran)
        total = [a + b for a, b in zip(total, (len(items), len(ran), killed), strict=True)]
        lines.append(
            f"| {group.name} | {len(items)} | {len(ran)} | {killed} | {len(ran) - killed} |"
        )
    lines.append(f"| all | {total[0]} | {total[1]} | {total[2]} | {total[1] - total[2]} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for and print the table."""
    parser = argparse.ArgumentParser(description="Seeded mutants of core logic.")
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--only", default="", help="groups by name, with commas between")
    parser.add_argument("--each", type=int, default=0, help="at most so many more of each group")
    parser.add_argument("--again", action="store_true", help="forget what survived, and judge it")
    asked = parser.parse_args()
    OPERATOR_PROVIDERS["ours"] = OurOperators()
    cosmic_ray.mutating.run_tests = forked_tests
    os.environ |= {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(TREE),
    }
    copy_tree()
    os.chdir(TREE)
    chosen = list(groups(asked.only))
    with use_db(str(FOLDER / f"seed-{asked.seed}.sqlite")) as session:
        again = forget_survivors(session) if asked.again else set()
        for group in chosen:
            sys.path.insert(0, str(TREE))
            child = os.fork()
            if not child:
                judge(group, session, asked.seed, asked.each, again)
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                raise SystemExit(1)
        print(f"seed {asked.seed}\n\n{summary(chosen, session, asked.seed)}")


def forget_survivors(session: WorkDB) -> set[str]:
    """Take back the results of survivors, to judge them by the tests of now; return which."""
    names = {name for name, result in session.results if not result.is_killed}
    with session._session_maker.begin() as rows:
        rows.query(WorkResultStorage).filter(WorkResultStorage.job_id.in_(names)).delete()
    return names


if __name__ == "__main__":
    main()
