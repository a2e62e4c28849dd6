"""The house as strangers find it: what is reached, which floors it has, and its words."""

import ast
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from dashboard.web.frame.navigation import PAGES as PAGE_ROWS

ROOT = Path(__file__).parents[1]
PACKAGES = ("data", "collectors", "forecasting", "planner", "dashboard")
DOORS = (
    "dashboard.cli",
    "dashboard.web.app",
    *(f"dashboard.web.{row.view}.{tab.view}" for row in PAGE_ROWS for tab in row.tabs),
)
"""What people start: commands, and the pages, which Streamlit runs by their path."""
MAX_FLOORS = 7
RETIRED = {
    r"\bWarmth\b": "WarmStart",
    r"\bErrand\b": "PartitionTask",
    r"\bLetIn\b": "AuthMiddleware",
    r"\bDesk\b": "DecisionService",
    r"rollup_beside": "postgres_rollup",
    r"fire.?up": "boot",
    r"over_price": "over_quota_penalty",
    r"by a defect": "with an unexpected error",
    r"left the (forecasts' )?bands?\b": "left the forecast interval",
    r"[Dd]oing work": "in use",
    r"[Hh]eld and idle": "allocated but idle",
    r'"""Give ': "Return",
    r"\bfor (?:\w+, )*one(?:, \w+)* in\b": "the noun: for job in jobs",
}
"""Words that the vocabulary has replaced, and by what."""
ALLOWED = {"data/settings/renamed.py"}

DRAWS_FLEET = r'SimulatedFleetCollector\(|StoredFleet\(|write_clusters\(|"demo", ?"--'
READS_TIME = r'\butc_now\(|datetime\.now\(|"demo", ?"--'
STATES_TIME = r"clock_at\(|\bdemo_time\b"

MAX_FILES = 15
FRONT_DOORS = {
    "dashboard/api/app.py",
    "dashboard/api/unix_socket.py",
    "dashboard/web/app.py",
    "data/py.typed",
    "forecasting/forecast.py",
    "planner/advise.py",
    "planner/plan.py",
}
"""Files that stand beside folders."""
MAX_PARTICIPLES = 15  # of 32,800 names: add none; name the thing, as `rows`
PARTICIPLES = frozenset(
    [
        "found",
        "known",
        "said",
        "told",
        "held",
        "kept",
        "wanted",
        "asked",
        "named",
        "seen",
        "given",
        "made",
        "shown",
        "chosen",
        "foreseen",
        "taken",
        "left",
        "meant",
        "spoken",
        "lacking",
        "own",
        "whole",
        "near",
        "beside",
    ]
)
"""Words that do not say what a variable holds."""
QUESTIONS = frozenset(
    ["what", "which", "who", "whose", "how", "where", "why", "when", "from", "whether"]
)
"""Words with which the docstring of a module does not begin."""


@cache
def sources() -> dict[str, str]:
    """The text of every module of the five packages, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of ours that a module imports, anywhere in it, and those that it names."""
    known, found = sources(), set()
    for node in ast.walk(ast.parse(known[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return frozenset(found & known.keys())


def test_every_module_is_reached_by_a_command_or_a_page() -> None:
    """What only tests or benchmarks use stands with them."""
    reached: set[str] = set()
    waiting = [name for name in sources() if name.startswith(DOORS)]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += imports(module)
    folders = {name for name in sources() if (ROOT / name.replace(".", "/")).is_dir()}
    assert sources().keys() - reached - folders == set()


def rooms() -> dict[str, set[str]]:
    """Each room of the planner, and the rooms that it uses."""
    found: dict[str, set[str]] = {}
    for module in sources():
        if module.startswith("planner."):
            used = {name.split(".")[1] for name in imports(module) if name.startswith("planner.")}
            found.setdefault(module.split(".")[1], set()).update(used - {module.split(".")[1]})
    return found


def test_the_planner_has_few_floors_and_one_front_door() -> None:
    """No two rooms use each other; plan.py and advise.py alone stand beside the rooms."""
    uses = rooms()

    def floor(room: str, above: tuple[str, ...] = ()) -> int:
        assert room not in above, f"a circle: {' -> '.join([*above, room])}"
        return 1 + max((floor(used, (*above, room)) for used in uses[room]), default=0)

    assert max(floor(room) for room in uses) <= MAX_FLOORS
    loose = {path.name for path in (ROOT / "planner").glob("*.py")}
    assert loose == {"__init__.py", "advise.py", "plan.py"}


def circles(uses: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach one another."""
    reached: dict[str, set[str]] = {}
    for start in uses:
        waiting, reached[start] = [start], set()
        while waiting:
            targets = uses.get(waiting.pop(), set()) - reached[start]
            reached[start] |= targets
            waiting += targets
    groups = {
        tuple(sorted(other for other in reached[node] if node in reached.get(other, ())))
        for node in uses
        if node in reached[node]
    }
    return [list(group) for group in sorted(groups)]


def test_no_files_and_no_folders_import_each_other() -> None:
    """Not at any level: neither files, nor the folders and files of one folder."""
    known = sources()
    packages = {name for name in known if (ROOT / name.replace(".", "/")).is_dir()}
    levels: dict[str, dict[str, set[str]]] = {}
    files: dict[str, set[str]] = {}
    for module in known.keys() - packages:
        files[module] = set(imports(module) - packages - {module})
        for other in files[module]:
            ends = module.split("."), other.split(".")
            shared = next(at for at, (a, b) in enumerate(zip(*ends, strict=False)) if a != b)
            above, below = (".".join(end[: shared + 1]) for end in ends)
            levels.setdefault(".".join(ends[0][:shared]), {}).setdefault(above, set()).add(below)
    assert circles(files) == []
    assert [circle for level in levels.values() for circle in circles(level)] == []


def test_folders_stay_small() -> None:
    """A folder has at most 15 files beside its `__init__.py`."""
    files = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.*")
        if path.is_file() and path.parent.name != "__pycache__" and path.name != "__init__.py"
    )
    assert {folder: count for folder, count in files.items() if count > MAX_FILES} == {}


def test_no_file_stands_beside_folders_but_front_doors() -> None:
    """A folder holds folders or files."""
    loose = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for folder in [ROOT / package, *(ROOT / package).rglob("*/")]
        if any((inner / "__init__.py").is_file() for inner in folder.iterdir())
        for path in folder.iterdir()
        if path.is_file() and path.name != "__init__.py"
    }
    assert loose == FRONT_DOORS


def test_names_say_what_a_value_is() -> None:
    """Participles as names never get more, and no docstring of a module begins with a question."""
    trees = {path: ast.parse(text) for path, text in sources().items()}
    names = [
        f"{path}:{node.lineno} {node.id}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if node.id in PARTICIPLES
    ]
    docstrings = [ast.get_docstring(tree) or "-" for tree in trees.values()]
    assert len(names) <= MAX_PARTICIPLES, "\n".join(["rename what you added of:", *names])
    assert [text for text in docstrings if text.split()[0].lower() in QUESTIONS] == []


def test_no_two_classes_share_a_name() -> None:
    """One name, one meaning, across the five packages."""
    names = Counter(
        node.name
        for text in sources().values()
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("word", RETIRED)
def test_retired_words_stay_retired(word: str) -> None:
    """docs/vocabulary.md has the word for it."""
    found = [
        f"{path.relative_to(ROOT)}: say {RETIRED[word]}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix in (".py", ".j2", ".toml", ".sql")
        and str(path.relative_to(ROOT)) not in ALLOWED
        and re.search(word, path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_fleet_that_is_drawn_has_a_stated_time() -> None:
    """It shows other jobs at another hour of the week, so no test of it has the hour of the run."""
    tests = {
        path.relative_to(ROOT / "tests").as_posix(): path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("*.py")
    }
    by_the_run = {
        path
        for path, text in tests.items()
        if re.search(DRAWS_FLEET, text) and re.search(READS_TIME, text)
        if not re.search(STATES_TIME, text)
    }
    browser = {path for path in by_the_run if path.startswith("browser/")}
    assert not browser or re.search(STATES_TIME, tests["browser/conftest.py"])
    assert by_the_run - browser == {"test_released_files.py"}  # runs what is installed elsewhere


def test_the_readme_is_short() -> None:
    """It is for users: what it is, two commands, first steps, where to read on."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 170
