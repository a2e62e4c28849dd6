"""Every setting with hostile values from every source: a named error, or settings that work."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drawn import examples

from dashboard.cli import main
from data.base.errors import SettingsError
from data.settings.access import AccessSettings
from data.settings.all_settings import Settings
from data.settings.fields import settings_in
from data.settings.load import LoadedSettings, load_settings, setting_rows
from data.settings.store import StoreSettings

FIELDS = [
    (section, field.name)
    for section in Settings.__dataclass_fields__
    for field in settings_in(getattr(Settings(), section))
]
IN_A_FILE = (
    *("1e300", "-1e300", "1e18", "9e15", "-1", "0", "1e-300", "nan", "inf", "-inf", "true"),
    *("9223372036854775807", "9" * 4000, "9" * 5000, "-" + "9" * 4301, "0x" + "f" * 5000),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-01", "[]", "{}"),
    *("[" * 5000 + "]" * 5000, '"' + "a" * 70_000 + '"', '"\\u001b[2J\\u0007"', '""', '"0x1p5"'),
    *("[{a = 1}]", "[{}]", '"\\U0010ffff"', "1e400", "0b1", "0o7"),
)
AS_TEXT = (
    *("1e300", "-1e300", "1e18", "-1", "0", "1e-300", "nan", "inf", "-inf", "1e400", "", " "),
    *("9223372036854775807", "9" * 4000, "9" * 5000, "0x1p5", "0x10", "1_000", "٣", "\udcff"),
    *("9999-12-31T23:59:59-23:59", "[" * 5000, "a" * 70_000, "\x1b[2J\x07", "true", "\n", "../.."),
)

BOTH_WAYS = examples(100) == 100
"""Whether each text comes by the environment and by the command line: else by turns."""


def require_usable(loaded: LoadedSettings) -> None:
    """What is accepted can be shown, and counted with."""
    rows = setting_rows(loaded)
    assert len(rows) == len(FIELDS)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    units = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1, "slots": 86_400}
    for section, field in FIELDS:
        value = getattr(getattr(loaded.settings, section), field)
        unit = units.get(field.rsplit("_", 1)[-1])
        if unit is not None:
            span = timedelta(seconds=value * unit)
            assert now - span < now + span or not span


def outcomes(section: str, field: str, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """What each value from each source led to: '' when accepted, else the error."""
    name = f"{section}.{field}"
    file = tmp_path / "trimtab.toml"
    for value in IN_A_FILE:
        file.unlink(missing_ok=True)  # a file that is cut and written again waits for the disk
        file.write_text(f"[{section}]\n{field} = {value}\n", encoding="utf-8")
        yield value, outcome(path=file, environ={})
    variable = f"TRIMTAB_{section}_{field}".upper()
    for number, value in enumerate(AS_TEXT, start=FIELDS.index((section, field))):
        if BOTH_WAYS or number % 2:
            yield value, outcome(path=None, environ={variable: value})
        if BOTH_WAYS or not number % 2:
            yield value, outcome(path=None, environ={}, overrides={name: value})


def outcome(**sources: Any) -> str:
    """'' when settings come of it that work, else the error's text."""
    try:
        loaded = load_settings(**sources)
    except SettingsError as error:
        said = str(error)
    else:
        require_usable(loaded)
        return ""
    assert len(said) < 2000
    assert said.isprintable()
    return said


@pytest.mark.hypothesis  # the slow end takes both ways
@pytest.mark.parametrize(("section", "field"), FIELDS)
def test_a_hostile_value_is_refused_by_name_or_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, field: str
) -> None:
    """Whatever it is and wherever it comes from; a file that is no TOML is named itself."""
    monkeypatch.chdir(tmp_path)
    for value, said in outcomes(section, field, tmp_path):
        named = field in said or section in said or "trimtab.toml is not valid TOML" in said
        assert not said or named, (value[:50], said)


def test_a_number_too_long_to_be_read_is_shown_with_its_line(tmp_path: Path) -> None:
    """Python says only that some number was."""
    file = tmp_path / "trimtab.toml"
    file.write_text("[serve]\nport = 8501\ncycle_minutes = " + "9" * 4301 + "\n")
    with pytest.raises(SettingsError, match=r"in line 3 \(cycle_minutes = 999"):
        load_settings(file, environ={})


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "huge"])
def test_a_settings_file_that_is_none_is_refused(tmp_path: Path, kind: str) -> None:
    """Nothing waits for a writer, and nothing endless is read."""
    file = tmp_path / "settings"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "huge":
        with file.open("wb") as sparse:
            sparse.truncate(1 << 40)
    else:
        file = Path("/dev/zero")
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        load_settings(file, environ={})


@pytest.mark.parametrize("name", ["config.json", "job.toml"])
@pytest.mark.parametrize("kind", ["pipe", "device", "huge"])
def test_a_model_or_job_file_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    """By the command that a person gives."""
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as sparse:
            sparse.truncate(1 << 40)
    command = (
        ["estimate", str(path), "--batch", "1", "--seq", "1"]
        if name == "config.json"
        else ["submit", str(path)]
    )
    store = ["--store", f"duckdb:///{tmp_path}/s.duckdb"]
    assert main([*store, *command]) in (1, 2)
    assert name in capsys.readouterr().err


TIMES = (
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z", "2026-13-01T00:00:00Z", "now", "", "0"),
    *("2026-01-01", "9" * 5000, "2026-01-01T00:00:00", "2026-01-01T00:00:00+99:99", "\x1b[2J"),
    *("2026-W99-1T00:00:00Z", "1e300", "2201-01-01T00:00:00Z"),
)
TIMED = (
    ("cycle", "--now"),
    ("collect", "--now"),
    ("report", "weekly", "--now"),
    ("energy", "--from"),
    ("energy", "--to"),
    ("import", "x.txt", "--at"),
)


@pytest.mark.parametrize(("command", "time"), list(itertools.product(TIMED, TIMES)))
def test_a_hostile_time_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], time: str
) -> None:
    """The option is named."""
    with pytest.raises(SystemExit) as ended:
        main(["--store", f"duckdb:///{tmp_path}/s.duckdb", *command[:-1], f"{command[-1]}={time}"])
    assert ended.value.code == 2
    assert f"argument {command[-1]}" in capsys.readouterr().err


@pytest.mark.parametrize("time", ["1970-01-02T00:00:00Z", "2200-12-31T00:00:00-12:00"])
@pytest.mark.parametrize("command", TIMED[:5])
def test_a_time_at_the_edge_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], time: str
) -> None:
    """No arithmetic of any command leaves the calendar."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_PLANNING_HISTORY_DAYS", "400")
    monkeypatch.setenv("TRIMTAB_RETENTION_HOURLY_DAYS", "36500")
    store = ["--store", f"duckdb:///{tmp_path}/s.duckdb", "--quiet"]
    if time.startswith("2200"):
        time = "2200-12-31T11:00:00Z"
    assert main([*store, *command[:-1], f"{command[-1]}={time}"]) in (0, 1, 3)


@pytest.mark.parametrize(
    "networks",
    [
        "0.0.0.0/0",
        "0.0.0.0/1,128.0.0.0/1",
        "128.0.0.0/1, 64.0.0.0/2, 0.0.0.0/2",
        "10.0.0.5,::/1,8000::/1",
        "::ffff:0:0/96",
        "::ffff:0:0/97,::ffff:128.0.0.0/97",
        "0.0.0.0/1,::ffff:128.0.0.0/97",
        "::/2",
        ",".join(f"{first}.0.0.0/8" for first in range(256)),
    ],
)
def test_everyone_in_parts_is_everyone(networks: str) -> None:
    """The union counts: headers of everyone are never believed."""
    with pytest.raises(SettingsError, match=r"access\.proxy_addresses"):
        AccessSettings(mode="proxy", proxy_addresses=networks)


@pytest.mark.parametrize(
    "url",
    ["mysql://u:geheim@x/y", "sqlite:///t.db", "x", "duckdb://x", "duckdb:///:memory:", ""],
)
def test_a_store_of_another_engine_is_no_setting(tmp_path: Path, url: str) -> None:
    """Refused before anything is opened, with the engines that there are and no password."""
    path = tmp_path / "t.toml"
    path.write_text(f'[store]\nurl = "{url}"\n', encoding="utf-8")
    with pytest.raises(SettingsError, match=r"store\.url is .*duckdb:///PATH or postgresql") as end:
        load_settings(path, environ={})
    assert "geheim" not in str(end.value)


@pytest.mark.parametrize(
    "url",
    ["duckdb:///t.duckdb", "duckdb:///~nobody/t", "postgres://h/n", "postgresql+psycopg://u@h/n"],
)
def test_a_store_of_an_engine_that_there_is_is_a_setting(url: str) -> None:
    """Whether it is there is asked when it is opened."""
    assert StoreSettings(url=url).url == url


@pytest.mark.parametrize("networks", ["10.0.0.5", "10.0.0.0/8,192.168.0.0/16", "fd00::/8,::1"])
def test_real_proxies_are_believed(networks: str) -> None:
    """Single addresses and private networks."""
    assert AccessSettings(mode="proxy", proxy_addresses=networks).proxy_addresses == networks


def test_debug_tells_of_us_and_not_of_libraries() -> None:
    """The lines of a compiler are megabytes."""
    script = (
        "import logging, sys\nfrom dashboard.cli import main\nmain(['--debug', 'settings'])\n"
        "for name in ('numba.core.byteflow', 'matplotlib.font_manager',"
        " 'dashboard.cycle.run_cycle'):\n"
        "    logging.getLogger(name).debug('said by %s', name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    said = [line.partition(" ")[2] for line in done.stderr.splitlines() if "said by" in line]
    assert said == ["DEBUG dashboard.cycle.run_cycle: said by dashboard.cycle.run_cycle"]


WORK = {  # settings that say how much work a cycle is, or forbid it: their extremes take days
    *(
        "simulated_fleet.nodes",
        "simulated_fleet.seed",
        "planning.horizon_slots",
        "planning.slot_minutes",
    ),
    *("planning.history_days", "planning.budget_seconds"),
    *("prometheus.step_seconds", "prometheus.lookback_hours"),
}
SMALL = {
    "simulated_fleet.enabled": "true",
    "simulated_fleet.nodes": "1",
    "planning.budget_seconds": "0.05",
    "planning.model": "seasonal-naive",
    "prometheus.step_seconds": "300",
    "prometheus.lookback_hours": "6",
}


@pytest.mark.slow
@pytest.mark.parametrize("lowest", [True, False])
def test_a_cycle_runs_on_the_extremes_of_all_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowest: bool
) -> None:
    """Whatever range a setting has, its end is a number to count with."""
    monkeypatch.chdir(tmp_path)
    ladder = ["-1e4", "-1", "0", "1e-300", "0.001", "0.05", "1", "60"]
    if not lowest:
        ladder = ["1e300", "1e9", "1e7", "1e6", "876000", "87600", "44640", "36500", "1e4", "9600",
                  "1000", "100", "50", "14", "4", "1"]  # fmt: skip
    chosen = dict(SMALL)
    for section, field in FIELDS:
        name = f"{section}.{field}"
        kind = type(getattr(getattr(Settings(), section), field))
        if kind not in (int, float) or name in WORK:
            continue
        for text in ladder:
            tried = chosen | {name: str(int(float(text))) if kind is int else text}
            try:
                load_settings(None, environ={}, overrides=tried)
            except SettingsError:
                continue
            chosen = tried
            break
    for name, text in chosen.items():
        monkeypatch.setenv("TRIMTAB_" + name.replace(".", "_", 1).upper(), text)
    for command in ("settings", "cycle", "findings"):
        arguments = ["list"] if command == "findings" else []
        store = f"duckdb:///{tmp_path}/s.duckdb"
        assert main(["--store", store, "--quiet", command, *arguments]) == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('slot_minutes = "x"', "It must be a whole number."),
        ("slot_minutes = 2026-01-01", "in file trimtab.toml is 2026-01-01. It"),
        ("headroom_ratio = 07:30:00", "It must be a number."),
        ("model = 1", "It must be a text."),
    ],
)
def test_a_wrong_kind_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    """In those of people, not of Python."""
    monkeypatch.chdir(tmp_path)
    Path("trimtab.toml").write_text(f"[planning]\n{line}\n")
    with pytest.raises(SettingsError) as refused:
        load_settings(environ={})
    assert said in f"{refused.value.message}. {refused.value.hint}"


def test_a_byte_order_mark_is_no_part_of_the_settings(tmp_path: Path) -> None:
    """Editors of Windows write one."""
    path = tmp_path / "t.toml"
    path.write_text("[planning]\nslot_minutes = 30\n", encoding="utf-8-sig")
    assert load_settings(path, environ={}).settings.planning.slot_minutes == 30


def test_line_ends_of_windows_are_line_ends(tmp_path: Path) -> None:
    """A file with them says what it says without; within a text they are refused as others are."""
    lines = [
        "[access]",
        'mode = "open"  # note',
        'approvers = """ann,\\',
        '  bob"""',
        "[serve]",
        "port = 8600",
    ]
    read = []
    for end in ("\n", "\r\n"):
        path = tmp_path / f"{len(end)}.toml"
        path.write_bytes(end.join([*lines, ""]).encode())
        read.append(load_settings(path, environ={}).settings)
    assert read[0] == read[1]
    assert (read[1].access.approvers, read[1].serve.port) == ("ann,bob", 8600)
    path.write_bytes(b'[notify]\r\nmail_from = """a@site.example\r\nBcc: b@site.example"""\r\n')
    with pytest.raises(SettingsError, match=r"notify\.mail_from.*one line"):
        load_settings(path, environ={})


TEXTS = [
    (section, field)
    for section, field in FIELDS
    if isinstance(getattr(getattr(Settings(), section), field), str)
]


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\0"])
def test_no_text_of_the_settings_holds_a_line_end(end: str) -> None:
    """In a header, a command or a file it would begin another."""
    told = {}
    for section, field in TEXTS:
        name = f"{section}.{field}"
        told[name] = outcome(path=None, environ={}, overrides={name: f"a{end}X-Evil: 1"})
    assert [name for name, error in told.items() if name.rpartition(".")[2] not in error] == []
