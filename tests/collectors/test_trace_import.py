"""Importing traces: doubts are told by name, nothing is lost in silence, memory is bounded."""

import gzip
import io
import os
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_cases import PLAIN, START, TIME, imported, rows

from dashboard.cli import main
from data.settings.all_settings import RetentionSettings
from data.store import open_store


@pytest.mark.parametrize(
    ("cells", "mapping", "words"),
    [
        ({"util": lambda n: n / 40}, PLAIN, ["'util'", "0..1", "percent", 'unit = "ratio"']),
        ({}, PLAIN.replace("percent", "ratio"), ["'util'", "1..100", 'unit = "percent"']),
        ({"power": lambda n: 0.3 + n / 1e4}, PLAIN, ["'power'", 'unit = "kilowatts"']),
        ({"power": lambda n: 300_000 + n}, PLAIN, ["'power'", 'unit = "milliwatts"']),
        ({}, PLAIN.replace('"watts"', '"kilowatts"'), ["'power'", 'unit = "watts"']),
        ({"at": lambda n: 1767614400 + 60 * n}, PLAIN, ["'at'", "seconds since 1970"]),
        ({"at": lambda n: (1767614400 + n) * 10**3}, PLAIN, ["'at'", "milliseconds since 1970"]),
        ({"at": lambda n: (1767614400 + n) * 10**6}, PLAIN, ["'at'", "microseconds since 1970"]),
        ({"at": lambda n: (1767614400 + n) * 10**9}, PLAIN, ["'at'", "nanoseconds since 1970"]),
        ({"at": lambda n: f"05/01/2026 12:{n:02}:00"}, PLAIN, ["day or month first", "format"]),
        ({"at": lambda n: f"{5 + n % 20}/01/2026 12:00:00"}, PLAIN, ["day first", "format"]),
        ({"at": lambda n: f"01/{5 + n % 20}/2026 12:00:00"}, PLAIN, ["month first", "format"]),
        ({"at": lambda n: f"2026-01-05 12:{n:02}:00"}, PLAIN, ["without a zone", "timezone"]),
        ({"at": lambda n: f"5 Jan 2026 12:{n:02}"}, PLAIN, ["no ISO 8601", "format"]),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_by_name(
    cells: dict[str, object],
    mapping: str,
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The column, what its values look like, and the entry to write; nothing is kept."""
    code, _out, err = imported(tmp_path, capsys, rows(**cells), mapping)
    assert code in (1, 2)
    assert all(word in err for word in words), err
    assert not (tmp_path / "t.duckdb").exists()


def test_a_confirmed_unit_is_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fleet may be nearly idle: who wrote the map knows."""
    mapping = PLAIN.replace('unit = "percent"\n', 'unit = "percent"\nconfirmed = true\n')
    code, out, _err = imported(tmp_path, capsys, rows(util=lambda n: n / 40), mapping)
    assert code == 0
    assert out.startswith("40 new samples of 40 rows")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-300", "negative"),
        ("0", "zero"),
        ("1e300", "blank"),
        ("20000", "too-large"),
        ("inf", "not-finite"),
        ("ERR!", "no-number"),
        ("1_000", "no-number"),
        ("9" * 5000, "no-number"),
    ],
)
def test_readings_pass_the_checks_of_telemetry(
    value: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What no board shows is unknown, under the name that telemetry gives it; the row stays."""
    trace = rows(power=lambda n: value if n % 4 == 1 else 300)
    code, out, _err = imported(tmp_path, capsys, trace)
    assert code == 0
    assert out.startswith("40 new samples of 40 rows")
    assert f"10 power_watts: {reason}" in out


def test_rows_told_twice_say_which_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one file, in either order, as in two files."""
    low, high = rows(power=300), rows(power=600)
    for first, second in ((low, high), (high, low)):
        code, out, _err = imported(tmp_path, capsys, first + second.partition("\n")[2])
        assert (code, "the larger readings count" in out) == (0, True)
        assert "repeated: " in out
        with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
            energy = store.reader.energy(start=START, end=START + timedelta(hours=1), by="fleet")
        assert energy["energy_kwh"].sum() == pytest.approx(0.6 * 39 / 60)


def test_most_readings_refused_is_a_partial_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cells with a unit of another kind are no numbers: the exit code is 3, the column is named."""
    code, out, err = imported(tmp_path, capsys, rows(power=lambda n: f"{n} BTU"))
    assert code == 3
    assert "40 power_watts: no-number" in out
    assert "Most readings of power_watts were refused" in err


def test_a_trace_older_than_the_store_keeps_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows are counted, the reason is told, and the exit code is 3, the second time too."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.forget(RetentionSettings(), START + timedelta(days=100))
    for _time in range(2):
        code, out, err = imported(tmp_path, capsys, rows())
        assert code == 3
        assert out.startswith("0 new samples of 40 rows")
        assert "dropped: 40 older-than-retention" in out
        assert "retention.raw_days" in err
        assert "Most rows of the trace were lost" in err


@pytest.mark.parametrize(
    ("zone", "at", "reason"),
    [
        ("Europe/Berlin", "2025-10-26 02:{:02}:00", "ambiguous-local-time"),
        ("Europe/Berlin", "2025-03-30 02:{:02}:00", "nonexistent-local-time"),
        ("America/Sao_Paulo", "2018-02-17 23:{:02}:00", "ambiguous-local-time"),
        ("America/Sao_Paulo", "2018-11-04 00:{:02}:00", "nonexistent-local-time"),
    ],
)
def test_hours_that_a_zone_has_twice_or_never_are_counted(
    zone: str, at: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A local time of such an hour has no one place in UTC."""
    mapping = PLAIN.replace(TIME, f'{TIME}timezone = "{zone}"\n')
    trace = rows(at=lambda n: at.format(n) if n < 10 else f"2025-07-01 12:{n:02}:00")
    code, out, _err = imported(tmp_path, capsys, trace, mapping)
    assert code == 0
    assert (
        f"30 new samples of 40 rows and 1 job kept from map; repeated: 0; dropped: 10 {reason}"
        in out
    )


@pytest.mark.parametrize(
    "change",
    [
        ("watts", "megawatts"),
        ("[columns.power_watts]", "[columns.power_limit_watts]"),
        ("[columns.power_watts]", "[columns.sampled_at]"),
        ('node = "n1"', "node = 5"),
        ('node = "n1"', 'memory_total_mib = "many"\nnode = "n1"'),
        ('node = "n1"', 'memory_total_mib = -1\nnode = "n1"'),
        ('node = "n1"', 'power_watts = nan\nnode = "n1"'),
        ('node = "n1"', f'memory_total_mib = {"9" * 400}\nnode = "n1"'),
        ('node = "n1"', f"node = {'9' * 5000}"),
        ('node = "n1"', f"node = {'[' * 2000}"),
        ('node = "n1"', f'node = "{"x" * 5000}"'),
        ('node = "n1"', 'platform = "mainframe"\nnode = "n1"'),
        (TIME, "time = 5\n"),
        (TIME, TIME + "timezone = 5\n"),
        (TIME, TIME + 'timezone = "Mars/Base"\n'),
        (TIME, TIME + 'timezone = "../../etc/passwd"\n'),
        (TIME, TIME + "format = []\n"),
        (TIME, TIME + 'format = "%Q%"\ntimezone = "UTC"\n'),
        (TIME, TIME + 'format = "%Y%Y"\ntimezone = "UTC"\n'),
        (TIME, TIME + 'unit = "seconds"\nstart = "0001-01-01T00:00:00+14:00"\n'),
        (TIME, TIME + 'unit = "seconds"\nstart = "9999-12-31T23:59:59-14:00"\n'),
        (TIME, TIME + 'unit = "nanoseconds"\nstart = "2026-01-01T00:00:00Z"\n'),
        (TIME, '[file]\nencoding = "rot13"\n' + TIME),
        (TIME, '[file]\nencoding = "hex"\n' + TIME),
        (TIME, '[file]\ndelimiter = "ab"\n' + TIME),
        (TIME, "[file]\ndelimiter = 5\n" + TIME),
        (TIME, '[file]\ndecimal = "x"\n' + TIME),
        ('column = "job"', 'column = ["job"]'),
        ('column = "job"', 'column = ""'),
        (TIME, f'source = "{"s" * 5000}"\n' + TIME),
        (TIME, "source = 5\n" + TIME),
    ],
    ids=range(31),
)
def test_no_map_makes_a_traceback(
    change: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A map that cannot be used is an error of one line, or is used."""
    assert change[0] in PLAIN
    code, _out, err = imported(tmp_path, capsys, rows(), PLAIN.replace(*change, 1))
    assert code in (0, 1, 2, 3)
    assert "Traceback" not in err
    assert len(err) < 2000


@pytest.mark.parametrize("hours", ["%H:%M:%S %p", "%I:%M:%S"])
def test_half_days_without_their_hours_are_refused(
    hours: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With %H strptime overlooks PM, and with %I alone every afternoon is a morning."""
    form = PLAIN.replace(TIME, TIME + f'format = "%m/%d/%Y {hours}"\ntimezone = "UTC"\n', 1)
    code, _out, err = imported(tmp_path, capsys, rows(), form)
    assert code == 2
    assert "%I with %p" in err


@pytest.mark.parametrize("seed", range(40))
def test_no_damaged_file_makes_a_traceback(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes are flipped, cut out and put in, in Parquet and CSV, packed and plain."""
    draw = random.Random(seed)  # noqa: S311 a draw, no secret
    body = rows().encode()
    if seed % 2:
        table, out = pa.csv.read_csv(io.BytesIO(body)), io.BytesIO()
        pq.write_table(table, out)
        body = out.getvalue()
    elif seed % 4 == 2:
        body = gzip.compress(body)
    damaged = bytearray(body)
    for _time in range(draw.choice([1, 3, 30])):
        at = draw.randrange(len(damaged))
        kind = draw.choice("fci")
        if kind == "f":
            damaged[at] = draw.randrange(256)
        elif kind == "c":
            del damaged[at : at + draw.randrange(1, 40)]
        else:
            damaged[at:at] = draw.choice([b"\0", b'"', b"\xff\xfe", b"\n,,,,,,\n", b"\r"])
    code, _out, err = imported(tmp_path, capsys, bytes(damaged))
    assert code in (0, 1, 2, 3)
    assert "Traceback" not in err


def test_a_map_that_is_no_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder and a pipe are no maps; a pipe is not waited for."""
    (tmp_path / "trace").write_text(rows())
    os.mkfifo(tmp_path / "pipe")
    for where in (tmp_path, tmp_path / "pipe", tmp_path / "none"):
        store = f"duckdb:///{tmp_path}/t.duckdb"
        code = main(["--store", store, "import", str(tmp_path / "trace"), "--map", str(where)])
        assert code == 2
        assert str(where) in capsys.readouterr().err


def long_ids(path: Path) -> None:
    """2,000 rows that each hold the name of one job, a megabyte: 97 kB, 2 GB when unpacked."""
    jobs = pa.chunked_array([pa.repeat("j" * 2**20, 20)] * 100)  # 20 MB of memory
    texts = {"gpu": ["x"] * 2000, "job": jobs}
    write(path, 2000, texts, use_dictionary=False, write_statistics=False)


def listed_ids(path: Path) -> None:
    """2,000 rows that name one job of half a megabyte, which the file holds once."""
    write(path, 2000, {"gpu": ["x"] * 2000, "job": ["j" * 2**19] * 2000})


def many_long_ids(path: Path) -> None:
    """300 jobs whose names of a megabyte differ, packed to little."""
    write(path, 300, {"gpu": ["x"] * 300, "job": [f"{n}" + "j" * 2**20 for n in range(300)]})


def many_rows(path: Path) -> None:
    """As many rows as one row group may have, packed to little."""
    write(path, 300_000, {"gpu": ["x"] * 300_000, "job": ["j"] * 300_000})


def long_cell(path: Path) -> None:
    """A cell of 200 MiB, packed to 200 kB."""
    with gzip.open(path, "wb") as file:
        file.write(b'at,job,gpu,util,power\n2026-01-05T12:00:00Z,"')
        for _time in range(200):
            file.write(b"j" * 2**20)
        file.write(b'",GPU-1,50,300\n')


def write(path: Path, count: int, texts: dict[str, Any], **options: bool) -> None:
    """A Parquet file with these texts and plain numbers."""
    numbers = {"util": [50.0] * count, "power": [300.0] * count}
    at = pa.array([START] * count, pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"at": at, **texts, **numbers}), path, compression="zstd", **options)


READ = """
import resource, sys
from datetime import datetime, UTC
from pathlib import Path
from collectors.trace.files import Trace, load_map
from data.base.errors import TrimtabError
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    trace = Trace(Path(sys.argv[1]), load_map(Path(sys.argv[2])), now=datetime.now(tz=UTC))
    print(sum(len(piece.samples) for piece in trace.pieces()), dict(trace.refused_readings))
except TrimtabError as error:
    print("refused", error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (long_ids, "MiB of text in 2000 rows of row group 0"),
        (listed_ids, "2000 {'job_id: too-long': 2000}"),
        (many_long_ids, "refused the column 'job' has 300 MiB of text"),
        (long_cell, "has a row of more than 4 MiB"),
        (many_rows, "300000 {}"),
    ],
)
def test_a_small_file_takes_little_memory(make: object, said: str, tmp_path: Path) -> None:
    """However well a file is packed, reading it takes less than 400 MiB."""
    path, where = tmp_path / "trace", tmp_path / "map.toml"
    make(path)  # type: ignore[operator]
    where.write_text(PLAIN)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), str(where)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told, grown = done.stdout.strip().rsplit("\n", 1)
    assert said in told
    assert int(grown) < 400


def test_a_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kB that become a GiB are no recording; the file is named, and nothing is kept."""
    monkeypatch.setattr("collectors.trace.tables._FREELY_UNPACKED", 2**20)
    path, mapping = tmp_path / "bomb.csv.gz", tmp_path / "map.toml"
    mapping.write_text(PLAIN)
    path.write_bytes(gzip.compress(b"at,gpu,util,power\n" + b"0,0,0,0\n" * 500_000))
    store = tmp_path / "t.duckdb"
    words = ["--store", f"duckdb:///{store}", "import", str(path), "--map", str(mapping)]
    assert main(words) == 1
    assert "bomb.csv.gz unpacks to more than" in capsys.readouterr().err
    assert not store.exists()
