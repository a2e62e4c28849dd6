"""Recordings that people make themselves: units in cells, local numbers, boards told by index."""

import random
import re
from datetime import timedelta
from pathlib import Path

import pytest
from trace_cases import PLAIN, START, imported, rows

from collectors.trace.column_map import FACTORS
from collectors.trace.files import Trace, load_map
from collectors.trace.numbers import NumberForm
from data.store import open_store


def powers(folder: Path) -> list[float]:
    """The power of every row of the trace that is kept, W, in order."""
    trace = Trace(folder / "trace", load_map(folder / "map.toml"), now=START + timedelta(days=1))
    return [float(watts) for piece in trace.pieces() for watts in piece.samples["power_watts"]]


@pytest.mark.parametrize(
    ("target", "unit", "text", "value"),
    [
        ("power_watts", "watts", "312.5 W", 312.5),
        ("power_watts", "watts", "312.5W", 312.5),
        ("power_watts", "watts", "0.3125 kW", 312.5),
        ("power_watts", "kilowatts", "312.5 W", 0.3125),
        ("power_watts", "watts", "312500 mW", 312.5),
        ("utilization_ratio", "percent", "97 %", 97.0),
        ("utilization_ratio", "ratio", "97%", 0.97),
        ("memory_used_mib", "mib", "20480 MiB", 20480.0),
        ("memory_used_mib", "mib", "20 GiB", 20480.0),
        ("memory_used_mib", "gib", "20480 MiB", 20.0),
        ("energy_joules", "joules", "2 kWh", 7_200_000.0),
    ],
)
def test_a_value_may_carry_its_unit(target: str, unit: str, text: str, value: float) -> None:
    """The cell's own unit counts, whatever the map says of those without one."""
    form = NumberForm(column="c", units=FACTORS[target], factor=FACTORS[target][unit])
    assert form.read(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["312 MW", "312 BTU", "312 MiB", "97 % W", "W", "about 300", "12,34,5", "1 2", "0x10"]
)
def test_what_is_not_understood_is_no_number(text: str) -> None:
    """A unit of another kind, or of none, is not left out: the value is unknown."""
    form = NumberForm(column="c", decimal=".", units=FACTORS["power_watts"])
    assert form.read(text) is None


def written(value: int, source: random.Random, decimal: str) -> str:
    """A number of thousandths as somebody writes it with this decimal sign."""
    groups = {".": ",", ",": "."}
    separator = source.choice(["", groups[decimal], " ", "'", "\u202f", "\u2019"])
    whole, thousandths = divmod(value, 1000)
    text = f"{whole:,}".replace(",", separator)
    return f"{text}{decimal}{thousandths:03}" if source.random() < 0.8 else text


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("seed", range(5))
def test_numbers_of_a_country_are_read_by_its_decimal_sign(decimal: str, seed: int) -> None:
    """Whatever parts the thousands; the map says which sign is the decimal one."""
    source = random.Random(seed)  # noqa: S311 a draw, no secret
    form = NumberForm(column="c", decimal=decimal)
    for _ in range(300):
        value = source.randrange(10 ** source.randint(4, 10))
        text = written(value, source, decimal)
        expected = value / 1000 if decimal in text else float(value // 1000)
        assert form.read(text) == expected, text


def test_a_comma_that_may_mean_two_things_is_refused_with_the_line_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is kept; with the line it imports, each sign in its own way."""
    trace = rows(power=lambda n: f'"{300 + n},250 W"')
    code, _out, err = imported(tmp_path, capsys, trace)
    assert code == 2
    assert "'300,250'" in err
    assert 'decimal = "," or decimal = "."' in err
    code, _out, _err = imported(tmp_path, capsys, trace, '[file]\ndecimal = ","\n' + PLAIN)
    assert code == 0
    assert powers(tmp_path)[:2] == [300.25, 301.25]


def test_words_of_nvidia_smi_for_no_value_are_no_wrong_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are left open without a word; the rest of the column is read."""
    words = ["[N/A]", "[Not Supported]", "[Unknown Error]", "[GPU is lost]"]
    trace = rows(power=lambda n: words[n % 4] if n < 12 else "350 W")
    code, out, _err = imported(tmp_path, capsys, trace)
    assert (code, "dropped: none" in out) == (0, True)
    assert powers(tmp_path)[12:] == [350.0] * 28


def two_boards(*, uuid: str = "", late_seconds: int = 0) -> str:
    """A busy and an idle board of one node, told by their index; `uuid` is the same for both."""
    lines = ["at,job,gpu,index,util,power"]
    for minute in range(40):
        for index, (util, power) in enumerate(((90, 300), (4, 60))):
            at = START + timedelta(minutes=minute, seconds=late_seconds * index)
            lines.append(f"{at:%Y-%m-%dT%H:%M:%SZ},team/a,{uuid},{index},{util},{power + minute}")
    return "\n".join(lines) + "\n"


INDEX = '[columns.gpu_index]\ncolumn = "index"\n'
UUID = '[columns.gpu_uuid]\ncolumn = "gpu"\n'


@pytest.mark.parametrize("constant", ["", 'gpu_uuid = "n1"\n'])
@pytest.mark.parametrize("late_seconds", [0, 7])
def test_boards_told_by_node_and_index_are_as_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], constant: str, late_seconds: int
) -> None:
    """No UUID, or one and the same: the idle board is there, and the job holds both."""
    mapping = PLAIN.replace(UUID, INDEX) + constant
    code, out, _err = imported(tmp_path, capsys, two_boards(late_seconds=late_seconds), mapping)
    assert (code, out.startswith("80 new samples of 80 rows")) == (0, True)
    assert "gpu_uuid = node and gpu_index" in out
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        assert sorted(gpu.gpu_uuid for gpu in store.reader.gpus()) == ["n1:0", "n1:1"]
        assert [job.gpu_count for job in store.reader.jobs()] == [2]


def test_a_row_without_index_is_dropped_where_the_index_tells_boards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be of either board."""
    trace = two_boards().replace(",1,4,63", ",,4,63")
    code, out, _err = imported(tmp_path, capsys, trace, PLAIN.replace(UUID, INDEX))
    assert (code, "dropped: 1 no-uuid" in out) == (0, True)


@pytest.mark.parametrize(
    ("mapping", "named"),
    [
        (PLAIN + INDEX, "the column 'gpu' .*gpu_index differ at the same time, 40 of 40"),
        (PLAIN.replace(UUID, "") + 'gpu_uuid = "n1"\n', "the constant .*readings differ"),
    ],
)  # fmt: skip
def test_one_name_of_several_boards_is_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mapping: str, named: str
) -> None:
    """A UUID that every row has would make one board of two and lose the idle one."""
    head, _, constants = mapping.partition("[constants]")
    if INDEX in constants:
        mapping = head + INDEX + "[constants]" + constants.replace(INDEX, "")
    code, _out, err = imported(tmp_path, capsys, two_boards(uuid="GPU-7"), mapping)
    assert code == 2
    assert re.search(named, err), err
    assert "map gpu_index" in err.replace("\n", " ")


def test_a_board_that_changed_its_index_is_one_board(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a restart: at no time has it two."""
    lines = two_boards(uuid="GPU-7").splitlines()
    trace = "\n".join([lines[0], *lines[1:41:2], *lines[42::2]]) + "\n"
    head, _, constants = PLAIN.partition("[constants]")
    mapping = head + INDEX + "[constants]" + constants
    code, _out, _err = imported(tmp_path, capsys, trace, mapping)
    assert code == 0
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        assert [gpu.gpu_uuid for gpu in store.reader.gpus()] == ["GPU-7"]


@pytest.mark.parametrize("flag", ["confirmed", "zero_is_unknown"])
@pytest.mark.parametrize("value", ['"false"', '"no"', "0", "1"])
def test_a_flag_of_the_map_is_true_or_false(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    """The text "false" is no flag: it would be taken for true."""
    mapping = PLAIN.replace('unit = "watts"\n', f'unit = "watts"\n{flag} = {value}\n')
    code, _out, err = imported(tmp_path, capsys, rows(), mapping)
    assert code == 2
    assert f"Write {flag} = true or {flag} = false" in err
