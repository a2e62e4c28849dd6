"""Trace files as other people write them, with what they mean worked out in plain Python."""

import bz2
import csv
import gzip
import io
import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MODEL = "H100-SXM5-80GB"
STARTS = {
    "winter": datetime(2025, 2, 3, 22, 30, tzinfo=UTC),
    "berlin-fold": datetime(2025, 10, 26, 0, 10, tzinfo=UTC),
    "sao-paulo-fold": datetime(2018, 2, 18, 1, 5, tzinfo=UTC),
    "late-month": datetime(2025, 3, 29, 12, 0, tzinfo=UTC),
}
ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe")
EPOCHS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
RELATIVE = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}
TEXT_TIMES = {
    "iso-z": "%Y-%m-%dT%H:%M:%SZ",
    "iso-utc": "%Y-%m-%d %H:%M:%S UTC",
    "iso-naive": "%Y-%m-%d %H:%M:%S",
    "slashes": "%Y/%m/%d %H:%M:%S",
    "day-first": "%d/%m/%Y %H:%M:%S",
    "month-first": "%m/%d/%Y %H:%M:%S",
    "dots": "%d.%m.%Y %H:%M",
    "words": "%d %b %Y %H:%M:%S",
}
NAIVE = ("iso-naive", "slashes", "day-first", "month-first", "dots", "words", "parquet-naive")
NEEDS_FORMAT = ("day-first", "month-first", "dots", "words")
POWER = {"watts": 1.0, "kilowatts": 1000.0, "milliwatts": 0.001}
BUSY = {0.0, 0.25, 0.5, 0.75, 1.0}
"""The utilizations that files tell, as ratios."""
UTIL = {"ratio": 1.0, "percent": 0.01}
FAULTS = (
    "nan", "inf", "negative", "absurd", "word", "no-time", "bad-time", "ancient", "future",
    "no-uuid", "long-job", "no-job", "repeat",
)  # fmt: skip
SHAPES = ("absent", "nested", "doubled", "huge-cell", "cut", "empty", "no-rows", "ragged")


@dataclass(frozen=True)
class Scenario:
    """One foreign file and the map that somebody wrote for it."""

    seed: int = 0
    rows: int = 20
    gpus: int = 1
    container: str = "csv"
    times: str = "iso-z"
    map_time: str = "right"
    zone: str = "UTC"
    start: str = "winter"
    util: str = "percent"
    map_util: str = "percent"
    power: str = "watts"
    map_power: str = "watts"
    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    packed: str = ""
    numbers: str = "float64"
    order: str = "sorted"
    faults: tuple[str, ...] = ()
    shape: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with the file as a whole and the map says what it needs."""
        whole = self.shape in ("", "ragged") and self.map_time == "right" and self.rows > 1
        return whole and self.map_util == self.util and self.map_power == self.power


@dataclass(slots=True)
class Meaning:
    """What the file says, row by row: time in s or why there is none, board, job, power in W."""

    rows: list[tuple[float | str, str, str, float | None]] = field(default_factory=list)
    broken: int = 0


def draw(source: random.Random) -> Scenario:
    """Draw a scenario; about half of them have a map that is right."""
    container = source.choice(["csv", "csv", "parquet"])
    text = list(TEXT_TIMES)
    own = ["parquet-utc", "parquet-naive"] if container == "parquet" else []
    times = source.choice([*text, *EPOCHS, *RELATIVE, *own])
    util, power = source.choice(list(UTIL)), source.choice(list(POWER))
    right = source.random() < 0.6
    csv_only: dict[str, Any] = {}
    if container == "csv":
        csv_only = {
            "delimiter": source.choice(",;\t|"),
            "decimal": source.choice("..,"),
            "encoding": source.choice(["utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16"]),
            "packed": source.choice(["", "", "gzip", "bz2", "zstd"]),
        }
        if csv_only["decimal"] == "," and csv_only["delimiter"] == ",":
            csv_only["delimiter"] = ";"
    else:
        kinds = ["float64", "float32", "float16", "decimal", "text", "dictionary", "int"]
        csv_only = {"numbers": source.choice(kinds)}
    return Scenario(
        seed=source.randrange(10**6),
        rows=source.choice([0, 1, 2, 5, 40, 200]),
        gpus=source.choice([1, 2, 4]),
        container=container,
        times=times,
        map_time="right" if right else source.choice(["right", "plain", "wrong-unit"]),
        zone=source.choice(ZONES),
        start=source.choice(list(STARTS)),
        util=util,
        map_util=util if right else source.choice(list(UTIL)),
        power=power,
        map_power=power if right else source.choice(list(POWER)),
        order=source.choice(["sorted", "reversed", "shuffled"]),
        faults=tuple(source.sample(FAULTS, source.choice([0, 0, 1, 2, 5]))),
        shape=source.choice(SHAPES) if source.random() < 0.2 else "",
        **csv_only,
    )


def written(scenario: Scenario, folder: Path) -> tuple[Path, Path, Meaning]:
    """Write the file and its map; return their paths and what the file means."""
    random_ = random.Random(scenario.seed)  # noqa: S311 a draw, no secret
    table: list[dict[str, Any]] = []
    meaning = Meaning()
    for number in range(scenario.rows):
        at = STARTS[scenario.start] + timedelta(seconds=60 * (number // scenario.gpus))
        if scenario.times in ("day", "days", "hours"):
            at = at.replace(second=0)
        watts = 50.0 + 2.0 * random_.randrange(300)
        busy = random_.choice(sorted(BUSY))
        row = {
            "at": _time(scenario, at),
            "job": f"team/{'é' if scenario.encoding != 'latin-1' else 'ü'}-{number % 3}",
            "gpu": f"GPU-{number % scenario.gpus}",
            "util": busy / UTIL[scenario.util],
            "power": watts / POWER[scenario.power],
        }
        time: float | str = _meant(scenario, at)
        power: float | None = watts
        if scenario.faults and random_.random() < 0.2:
            time, power = _spoil(scenario, random_.choice(scenario.faults), row, time, power)
        table.append(row)
        board, job = str(row["gpu"] or ""), str(row["job"] or "")
        meaning.rows.append((time, board, job if len(job) <= 1024 else "", power))
        if "repeat" in scenario.faults and random_.random() < 0.1:
            table.append(dict(row))
            meaning.rows.append(meaning.rows[-1])
    if scenario.order == "reversed":
        table.reverse()
    if scenario.order == "shuffled":
        random_.shuffle(table)
    path = folder / ("trace.dat" if scenario.seed % 2 else f"trace.{scenario.container}")
    path.write_bytes(_bytes(scenario, table, meaning))
    mapping = folder / "map.toml"
    mapping.write_text(_map(scenario), encoding="utf-8")
    return path, mapping, meaning


def _time(scenario: Scenario, at: datetime) -> Any:
    """Return the time as the file writes it."""
    kind = scenario.times
    if kind in TEXT_TIMES:
        local = at.astimezone(ZoneInfo(scenario.zone)) if kind in NAIVE else at
        return local.strftime(TEXT_TIMES[kind])
    if kind in EPOCHS:
        return round((at - EPOCH).total_seconds()) * EPOCHS[kind]
    if kind in RELATIVE:
        return (at - STARTS[scenario.start]).total_seconds() / RELATIVE[kind]
    if kind == "parquet-naive":
        return at.astimezone(ZoneInfo(scenario.zone)).replace(tzinfo=None)
    return at


def _meant(scenario: Scenario, at: datetime) -> float | str:
    """Return the time in s, or why the file does not tell it."""
    if scenario.times not in NAIVE:
        return at.timestamp()
    zone = ZoneInfo(scenario.zone)
    local = at.astimezone(zone).replace(tzinfo=None)
    offsets = {local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}
    return "ambiguous-local-time" if len(offsets) > 1 else at.timestamp()


def _spoil(
    scenario: Scenario, fault: str, row: dict[str, Any], time: float | str, power: float | None
) -> tuple[float | str, float | None]:
    """Put a fault into the row; return the time and power that are left of it."""
    readings = {"nan": float("nan"), "inf": float("inf"), "negative": -300.0, "absurd": 1e300}
    if fault in readings:
        row["power"] = readings[fault]
        return time, None
    if fault == "word" and scenario.container == "csv":
        row["power"] = "ERR!"
        return time, None
    if fault == "no-time":
        row["at"] = None
        return "no-time", power
    if fault == "bad-time" and scenario.times in TEXT_TIMES:
        row["at"] = "yesterday"
        return "no-time", power
    if fault in ("ancient", "future") and scenario.times not in NAIVE:
        year = 1975 if fault == "ancient" else 2090
        row["at"] = _time(scenario, datetime(year, 1, 2, tzinfo=UTC))
        return ("broken-time" if fault == "ancient" else "in-the-future"), power
    if fault == "no-uuid":
        row["gpu"] = None
        return time if isinstance(time, str) else "no-uuid", power
    if fault in ("long-job", "no-job"):
        row["job"] = "x" * 5_000 if fault == "long-job" else None
    return time, power


def _bytes(scenario: Scenario, table: list[dict[str, Any]], meaning: Meaning) -> bytes:
    names = ["at", "job", "gpu", "util", "power"]
    if scenario.shape == "empty":
        return b""
    if scenario.shape == "no-rows":
        table.clear()
        meaning.rows.clear()
    if scenario.shape == "huge-cell" and table:
        table[0]["job"] = "x" * 6_000_000
    if scenario.shape == "absent":
        names.remove("power")
    body = (
        _csv(scenario, names, table, meaning)
        if scenario.container == "csv"
        else _parquet(scenario, names, table)
    )
    return body[: len(body) * 2 // 3] if scenario.shape == "cut" else body


def _csv(
    scenario: Scenario, names: list[str], table: list[dict[str, Any]], meaning: Meaning
) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=scenario.delimiter, lineterminator="\n")
    writer.writerow([*names, "at"] if scenario.shape == "doubled" else names)
    for number, row in enumerate(table):
        cells = [_cell(scenario, row[name]) for name in names]
        writer.writerow([*cells, "1"] if scenario.shape == "doubled" else cells)
        if scenario.shape == "ragged" and number % 4 == 0:
            writer.writerow([*cells, "more"])
            meaning.broken += 1
    body = text.getvalue().encode(scenario.encoding, "replace")
    pack: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bz2": bz2.compress}
    if scenario.packed == "zstd":
        return pa.Codec("zstd").compress(body, asbytes=True)
    return pack.get(scenario.packed, bytes)(body)


def _cell(scenario: Scenario, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value).replace(".", scenario.decimal)
    return str(value)


def _parquet(scenario: Scenario, names: list[str], table: list[dict[str, Any]]) -> bytes:
    columns: dict[str, Any] = {}
    for name in names:
        values = [row[name] for row in table]
        if name == "at" and scenario.times == "parquet-naive":
            columns[name] = pa.array(values, pa.timestamp("us"))
        elif name == "at" and scenario.times == "parquet-utc":
            columns[name] = pa.array(values, pa.timestamp("ns", tz="UTC"))
        elif name == "power":
            columns[name] = _numbers(scenario, values)
        elif name == "job" and scenario.seed % 3 == 0:
            columns[name] = pa.array(values, pa.string()).dictionary_encode()
        elif name in ("job", "gpu"):
            columns[name] = pa.array(values, pa.string())
        else:
            columns[name] = pa.array(values)
    if scenario.shape == "nested":
        columns["power"] = pa.array([[1.0]] * len(table), pa.list_(pa.float64()))
    arrays = list(columns.items())
    if scenario.shape == "doubled":
        arrays.append(arrays[0])
    out = io.BytesIO()
    whole = pa.Table.from_arrays([entry for _, entry in arrays], names=[name for name, _ in arrays])
    pq.write_table(whole, out, row_group_size=1 + zlib.crc32(b"%d" % scenario.seed) % 100)
    return out.getvalue()


def _numbers(scenario: Scenario, values: list[Any]) -> pa.Array:
    """Return the numbers in the type of the scenario, where it can hold them."""
    kind = scenario.numbers
    if kind in ("text", "dictionary"):
        found = pa.array([repr(value) for value in values], pa.string())
        return found.dictionary_encode() if kind == "dictionary" else found
    plain = pa.array(values, pa.float64())
    if kind == "float32":
        return plain.cast(pa.float32())
    if kind == "float16" and scenario.power == "watts":
        return plain.cast(pa.float32()).cast(pa.float16())
    finite = all(value == value and abs(value) < 1e9 for value in values)
    if kind == "int" and finite and scenario.power != "kilowatts":
        return plain.cast(pa.int64())
    if kind == "decimal" and finite:
        return plain.cast(pa.decimal128(20, 6))
    return plain


def _map(scenario: Scenario) -> str:
    """Return the map as somebody writes it who knows the file, or does not."""
    time = {"column": "at"} | (_time_entries(scenario) if scenario.map_time != "plain" else {})
    if scenario.map_time == "wrong-unit":
        wrong = {"seconds": "milliseconds", "milliseconds": "microseconds"}
        time["unit"] = wrong.get(time.get("unit", ""), time.get("unit", "timestamp"))
    sections = {
        "file": {"decimal": scenario.decimal},
        "time": time,
        "columns.job_id": {"column": "job"},
        "columns.gpu_uuid": {"column": "gpu"},
        "columns.utilization_ratio": {"column": "util", "unit": scenario.map_util},
        "columns.power_watts": {"column": "power", "unit": scenario.map_power},
        "constants": {"node": "n1", "gpu_model": MODEL},
    }
    if scenario.encoding in ("latin-1", "utf-16"):
        sections["file"]["encoding"] = scenario.encoding
    lines = ['source = "foreign"']
    for name, entries in sections.items():
        lines += ["", f"[{name}]", *(f'{key} = "{value}"' for key, value in entries.items())]
    return "\n".join(lines) + "\n"


def _time_entries(scenario: Scenario) -> dict[str, str]:
    kind, found = scenario.times, {}
    if kind in NEEDS_FORMAT:
        found["format"] = TEXT_TIMES[kind]
    if kind in NAIVE:
        found["timezone"] = scenario.zone
    if kind in EPOCHS:
        found |= {"unit": UNIT_NAMES[kind], "start": "1970-01-01T00:00:00Z"}
    if kind in RELATIVE:
        found |= {"unit": kind, "start": STARTS[scenario.start].isoformat()}
    return found


def expected(meaning: Meaning) -> tuple[float, float, Counter[str]]:
    """Return (kWh, board hours observed, rows dropped by reason) of what a file means."""
    dropped: Counter[str] = Counter()
    boards: dict[str, dict[float, float | None]] = {}
    for time, board, _job, power in meaning.rows:
        if isinstance(time, str) or not board:
            dropped[time if isinstance(time, str) else "no-uuid"] += 1
            continue
        moments = boards.setdefault(board, {})
        known = [watts for watts in (moments.get(time), power) if watts is not None]
        moments[time] = max(known) if known else None
    if meaning.broken:
        dropped["wrong-columns"] += meaning.broken
    joules = seconds = 0.0
    for moments in boards.values():
        ordered = sorted(moments.items())
        for (before, entry), (after, other) in pairwise(ordered):
            if after - before > 300:
                continue
            seconds += after - before
            if entry is not None and other is not None:
                joules += (entry + other) / 2 * (after - before)
    return joules / 3.6e6, seconds / 3600, dropped
