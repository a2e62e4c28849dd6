"""A weekly report and the API that it names its sources by, to add it up from readings again."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any

import pytest
from starlette.testclient import TestClient

SLOT, GAP = timedelta(minutes=5), timedelta(minutes=5)
Row = dict[str, Any]
Rows = list[Row]
Sums = dict[tuple[datetime, str], dict[str, float]]
_NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?:\.\d+)?")


def moment(text: str) -> datetime:
    """A time of a document."""
    return datetime.fromisoformat(text)


def hours(slots: Rows, name: str) -> float:
    """The hours of a column of slots in seconds."""
    return float(sum(slot[f"{name}_seconds"] for slot in slots)) / 3600


def numbers(value: Any, place: str = "") -> Iterator[str]:
    """The places of all numbers of a document; those of a list stand under one name."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from numbers(entry, f"{place}.{key}")
    elif isinstance(value, list):
        for entry in value:
            yield from numbers(entry, f"{place}[]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place


@dataclass
class Trace:
    """A report, and what the API tells of it; `told` are the places that were found again."""

    client: TestClient
    told: set[str] = field(default_factory=set)
    _readings: dict[str, Rows] = field(default_factory=dict)

    @cached_property
    def report(self) -> Row:
        """The report as JSON."""
        found = self.get("/api/v1/reports/weekly")
        assert isinstance(found, dict)
        return found

    def get(self, address: str) -> Any:
        """What an address of the API answers."""
        answer = self.client.get(address)
        assert answer.status_code == 200, (address, answer.text)
        return answer.json()

    def rows(self, address: str) -> Rows:
        """All pages of a list."""
        found: Rows = []
        cursor, sign = "", "&" if "?" in address else "?"
        while cursor is not None:
            page = self.get(f"{address}{sign}limit=1000&cursor={cursor}")
            found += page["items"]
            cursor = page["next"]
        assert page["total"] == len(found), address
        return found

    def of(self, part: str, **named: str) -> str:
        """The address that the report names for a part of it."""
        return str(self.report["made_of"][part]).format(**named)

    def same(self, place: str, said: float | None, found: float | None) -> None:
        """The report says what was found."""
        self.told.add(place)
        assert said == (None if found is None else pytest.approx(found, rel=1e-9, abs=1e-9)), place

    def same_range(self, place: str, row: Row, found: tuple[float, ...]) -> None:
        """A row's low, central and high are what was found."""
        name = place.rsplit(".", 1)[1]
        for end, value in zip(("_low", "", "_high"), found, strict=True):
            self.same(f"{place}{end}", row[f"{name}{end}"], value)

    def left(self, *parts: str) -> set[str]:
        """The places of numbers of some parts of the report that nothing accounted for."""
        return {place for place in numbers(self.report) if place.startswith(parts)} - self.told

    @cached_property
    def start(self) -> datetime:
        """When the week begins."""
        return moment(self.report["start"])

    @cached_property
    def end(self) -> datetime:
        """When it ends."""
        return moment(self.report["end"])

    @cached_property
    def boards(self) -> list[str]:
        """Every board."""
        return sorted({row["gpu_uuid"] for row in self.rows(self.of("boards"))})

    @cached_property
    def slots(self) -> Rows:
        """What every board was counted as."""
        addresses = (self.of("slots", gpu_uuid=board) for board in self.boards)
        return [row for address in addresses for row in self.rows(address)]

    def readings(self, board: str) -> Rows:
        """The readings of a board, with those just before and after the week; `at` is when."""
        if board not in self._readings:
            found = self.rows(self.of("readings", gpu_uuid=board))
            self._readings[board] = [row | {"at": moment(row["sampled_at"])} for row in found]
        return self._readings[board]

    @cached_property
    def factors(self) -> dict[str, list[float]]:
        """The numbers that the text of each factor holds."""
        told = self.report["energy"]["factors"]
        return {
            row["name"]: [float(text) for text in _NUMBER.findall(row["value"])] for row in told
        }


def energy_between(before: Row, after: Row) -> float | None:
    """J between two readings of a board: docs/energy.md, "What was used"."""
    seconds = (after["at"] - before["at"]).total_seconds()
    old, new = before["energy_joules"], after["energy_joules"]
    if old is not None and new is not None:
        step = new - old if new >= old else new
        if step <= 1.2 * after["power_limit_watts"] * seconds + 100:
            return float(step)
    if before["power_watts"] is None or after["power_watts"] is None:
        return None
    return float((before["power_watts"] + after["power_watts"]) / 2 * seconds)


def counted(readings: Rows) -> Sums:
    """Time, work and energy by slot and holder, from the readings of a whole board in order."""
    sums: Sums = defaultdict(lambda: defaultdict(float))
    for before, after in pairwise(readings):
        if not timedelta(0) < after["at"] - before["at"] <= GAP:
            continue
        joules = energy_between(before, after)
        whole = (after["at"] - before["at"]).total_seconds()
        begin = before["at"]
        while begin < after["at"]:
            slot = datetime.fromtimestamp(begin.timestamp() // 300 * 300, tz=begin.tzinfo)
            until = min(after["at"], slot + SLOT)
            seconds = (until - begin).total_seconds()
            found = sums[slot, after["job_id"]]
            found["board_seconds"] += seconds
            if after["utilization_ratio"] is not None:
                found["known_board_seconds"] += seconds
                found["used_board_seconds"] += seconds * after["utilization_ratio"]
            if joules is not None:
                found["joules"] += joules * seconds / whole
            begin = until
    return sums
