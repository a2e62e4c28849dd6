"""Which tests wait for the slow end: those that slow_end.toml names, beside those marked so."""

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from _pytest.python import CallSpec

_TABLE = tomllib.loads(Path(__file__).with_name("slow_end.toml").read_text(encoding="utf-8"))
KEEP: dict[str, list[str]] = _TABLE["keep"]
SHOWN_BY: dict[str, str] = _TABLE["shown_by"]
SLOT_LENGTHS: list[int] = _TABLE["slot_lengths"]["every_run"]
STORIES: str = _TABLE["on_postgresql"]["stories"]
ON_POSTGRESQL: list[str] = _TABLE["on_postgresql"]["keep"]
_SECOND_ENGINE = "postgres"


def name_of(item: pytest.Item) -> str:
    """The file below tests/ and the function of a collected test."""
    return item.nodeid.removeprefix("tests/").partition("[")[0]


def waits(item: pytest.Item) -> bool:
    """Whether every run does without it."""
    name, case = name_of(item), _case_of(item)
    if name in KEEP:
        return not any(fnmatchcase(case, pattern) for pattern in KEEP[name])
    return name in SHOWN_BY or (_is_second(name, case) and name not in ON_POSTGRESQL)


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark the tests that wait; refuse (UsageError) a table that leaves nothing of a test."""
    kept: dict[str, int] = defaultdict(int)
    moved: dict[str, int] = defaultdict(int)
    second: set[str] = set()
    repeats = _other_slot_lengths(items)
    repeats |= _again_on_postgresql(item for item in items if item.nodeid not in repeats)
    for item in items:
        name = name_of(item)
        if waits(item) or (name not in KEEP and item.nodeid in repeats):
            item.add_marker(pytest.mark.slow_end)
            moved[name] += 1
        elif not item.get_closest_marker("slow_end"):
            kept[name] += 1
        if _is_on_postgresql(item):
            second.add(name)
    files = {name.partition("::")[0] for name in (*kept, *moved)}
    wrong = [name for name in (*KEEP, *SHOWN_BY) if _is_in(name, files) and not moved[name]]
    wrong += [
        name
        for name in (*KEEP, *(second - SHOWN_BY.keys()))
        if _is_in(name, files) and not kept[name]
    ]
    wrong += [name for name in SHOWN_BY.values() if _is_in(name, files) and not kept[name]]
    wrong += [name for name in ON_POSTGRESQL if _is_in(name, files) and name not in second]
    if wrong:
        raise pytest.UsageError(f"slow_end.toml does not fit {', '.join(sorted(set(wrong)))}")


def _other_slot_lengths(items: Sequence[pytest.Item]) -> set[str]:
    """The cases that differ from one of every run in the length of a slot alone."""
    of_length: dict[bool, dict[str, object]] = {True: {}, False: {}}
    for item in items:
        case: CallSpec | None = getattr(item, "callspec", None)
        if case is not None and "slot_minutes" in case.params:
            others = ((name, id(choice)) for name, choice in case.params.items())
            same = frozenset(each for each in others if each[0] != "slot_minutes")
            each_run = case.params["slot_minutes"] in SLOT_LENGTHS
            of_length[each_run][item.nodeid] = name_of(item), same
    shown = set(of_length[True].values())
    return {node for node, same in of_length[False].items() if same in shown}


def _again_on_postgresql(items: Iterable[pytest.Item]) -> set[str]:
    """The cases on PostgreSQL of tests of which an earlier case is on it."""
    repeats, begun = set(), set()
    for item in items:
        name = name_of(item)
        if not _is_on_postgresql(item):
            continue
        if name in begun and name not in ON_POSTGRESQL:
            repeats.add(item.nodeid)
        elif not waits(item):
            begun.add(name)
    return repeats


def _is_on_postgresql(item: pytest.Item) -> bool:
    case: CallSpec | None = getattr(item, "callspec", None)
    return case is not None and any(
        isinstance(choice, str) and choice == _SECOND_ENGINE for choice in case.params.values()
    )


def _case_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[2].removesuffix("]")


def _is_second(name: str, case: str) -> bool:
    """Whether it is a story on PostgreSQL, which another case of the same test tells on DuckDB."""
    return name.startswith(STORIES) and case.partition("-")[0] == _SECOND_ENGINE


def _is_in(name: str, files: set[str]) -> bool:
    return name.partition("::")[0] in files
