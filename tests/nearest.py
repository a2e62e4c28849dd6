"""Prints the test files that `make check` runs: those nearest to what changed, by imports.

A file has changed when it differs from where the branch left origin/main, else from the last
commit; where nothing differs, the last commit is the change. The nearest files are those with the
fewest imports between them and the change, and of these the ones of whose imports the largest share
leads there. Imports that no line of source names (a registry's text, a template) are not seen, so
`make check-all` runs the rest.
"""
# ruff: noqa: T201 - a program that prints its answer

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 30
"""Test files that make a check of up to 90 s on two cores."""
OF_THE_REPOSITORY = frozenset(
    f"tests/test_{name}.py" for name in ("docs", "help_golden", "house", "repository")
)
"""What looks at every file, whatever changed."""
_MARKED = re.compile(
    r"^pytestmark = \[?pytest\.mark\.(browser|kubernetes|postgres|prometheus|slow|slurm)\b",
    re.MULTILINE,
)


def git(*words: str) -> list[str]:
    """Return the lines of an answer of git, none where it has none."""
    asked = ["git", *words]
    answer = subprocess.run(asked, cwd=ROOT, check=False, capture_output=True, text=True)
    return [] if answer.returncode else answer.stdout.splitlines()


def changed_files() -> set[str]:
    """Return the paths of the files that changed, as the module describes; say if none did."""
    start = git("merge-base", "HEAD", "origin/main")
    changed = git("diff", "--name-only", *(start or ["HEAD"]))
    found = {*changed, *git("ls-files", "-o", "--exclude-standard")}
    if not found:
        beside = "origin/main" if start else "the last commit"
        print(f"check: nothing differs from {beside}: testing the last commit", file=sys.stderr)
    return found or set(git("diff", "--name-only", "HEAD^"))


def is_test(path: str) -> bool:
    """Tell whether pytest collects the file."""
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def needs_no_server(path: str) -> bool:
    """Tell whether the file is not marked as a whole, so that a check runs any of its tests."""
    return not _MARKED.search((ROOT / path).read_text(encoding="utf-8"))


def imported_names(source: str) -> Iterator[str]:
    """Yield what a file imports, by whole names: a module, or a name that may be one of its own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(paths: Iterable[str]) -> dict[str, set[str]]:
    """Return the files that each Python file imports; a test imports the conftests above it."""
    modules = {}
    for path in paths:
        name = path.removeprefix("tests/").removesuffix(".py").removesuffix("/__init__")
        modules[name.replace("/", ".")] = path
    found = {}
    for path in modules.values():
        names = imported_names((ROOT / path).read_text(encoding="utf-8"))
        found[path] = {modules[name] for name in names if name in modules} - {path}
        if is_test(path):
            above = (f"{folder}/conftest.py" for folder in Path(path).parents)
            found[path] |= {conftest for conftest in above if (ROOT / conftest).is_file()}
    return found


def distances(changed: Iterable[str], imported: dict[str, set[str]]) -> dict[str, int]:
    """Return how many imports lie between each file that the change reaches and the change."""
    importers = defaultdict(set)
    for path, others in imported.items():
        for other in others:
            importers[other].add(path)
    found: dict[str, int] = {}
    distance, edge = 0, set(changed) & imported.keys()
    while edge:
        found |= dict.fromkeys(edge, distance)
        edge = {path for reached in edge for path in importers[reached]} - found.keys()
        distance += 1
    return found


def nearest(changed: Iterable[str], imported: dict[str, set[str]]) -> tuple[list[str], int]:
    """Return the test files to run, and how many the change reaches.

    All that changed themselves are among them, and those of the repository.
    """
    found = distances(changed, imported)
    far = {path: found[path] for path in found if is_test(path) and needs_no_server(path)}

    def share(path: str) -> float:
        own = [other for other in imported[path] if not other.endswith("/conftest.py")]
        leading = [other for other in own if found.get(other, far[path]) < far[path]]
        return len(leading) / max(1, len(own))

    ordered = sorted(far, key=lambda path: (far[path], -share(path), path))
    itself = sum(not distance for distance in far.values())
    return sorted({*ordered[: max(MOST, itself)], *OF_THE_REPOSITORY}), len(far)


def main() -> None:
    """Print the files in one line, and to stderr how many there are."""
    listed = git("ls-files", "-co", "--exclude-standard", "--deduplicate", "*.py")
    imported = imports(path for path in listed if (ROOT / path).is_file())
    chosen, reached = nearest(changed_files(), imported)
    print(
        f"check: {len(chosen)} test files, the nearest of {reached} that the change reaches; "
        "`make check-all` runs all",
        file=sys.stderr,
    )
    print(*chosen)


if __name__ == "__main__":
    main()
