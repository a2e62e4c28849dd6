"""Bad input: one line with a hint on stderr, the exit code of the contract, nothing lost."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run one command in this process; give its exit code and its stderr."""
    code = main(arguments)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.err


def test_missing_settings_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A settings file that was asked for and is absent is a usage error."""
    code, err = run(capsys, "--settings", str(tmp_path / "none.toml"), "settings")
    assert code == 2
    assert "none.toml" in err
    assert len(err.splitlines()) == 1


def test_unknown_key_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt key is refused with the key that was meant."""
    (tmp_path / "t.toml").write_text("[planning]\nslot_minuts = 15\n")
    code, err = run(capsys, "--settings", str(tmp_path / "t.toml"), "settings")
    assert code == 2
    assert "slot_minutes" in err


def test_empty_store_says_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cycle on nothing names the two ways to get samples."""
    code, err = run(capsys, "--store", f"duckdb:///{tmp_path}/e.duckdb", "cycle")
    assert code == 1
    assert "trimtab import" in err
    assert "--prometheus" in err


def test_absent_store_is_not_created_by_a_reading_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Listing jobs of a store that does not exist is an error, not an empty list."""
    code, err = run(capsys, "--store", f"duckdb:///{tmp_path}/absent.duckdb", "jobs")
    assert code == 1
    assert "absent.duckdb" in err
    assert not (tmp_path / "absent.duckdb").exists()


def test_prometheus_down_is_one_line_and_keeps_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refused port is reported as such."""
    store = f"duckdb:///{tmp_path}/p.duckdb"
    code, err = run(
        capsys, "--quiet", "--store", store, "cycle", "--prometheus", "http://127.0.0.1:9"
    )
    assert code == 1
    assert "127.0.0.1:9" in err


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:9090", "javascript:alert(1)"])
def test_prometheus_address_of_another_kind_is_refused(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only http and https addresses are taken."""
    code, err = run(capsys, "cycle", "--prometheus", url)
    assert code == 2
    assert "prometheus.url" in err


def test_store_held_by_another_process_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The PID of the holder is in the message, and the file is untouched."""
    path = tmp_path / "held.duckdb"
    script = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True);"
        " sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        code, err = run(capsys, "--store", f"duckdb:///{path}", "jobs")
        holder.stdin.close()
    assert code == 1
    assert str(holder.pid) in err


def test_trace_without_map_names_the_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace cannot be read without knowing its columns."""
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    code, err = run(capsys, "import", str(tmp_path / "t.csv"))
    assert code == 2
    assert "alibaba-genai.toml" in err


def test_map_naming_an_absent_column_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The column that the file lacks is in the message; nothing is kept."""
    (tmp_path / "t.csv").write_text("pod,t_est_real_s\np,1\n")
    code, err = run(
        capsys,
        "--store",
        f"duckdb:///{tmp_path}/m.duckdb",
        "import",
        str(tmp_path / "t.csv"),
        "--map",
        str(Path(__file__).parents[2] / "docs/examples/alibaba-genai.toml"),
    )
    assert code in (1, 2)
    assert "gpu_util_pct" in err
    assert not (tmp_path / "m.duckdb").exists()


def test_unknown_region_names_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region that the carbon table lacks is refused before anything runs."""
    monkeypatch.setenv("TRIMTAB_ENERGY_REGION", "DEUX")
    code, err = run(capsys, "--store", f"duckdb:///{tmp_path}/r.duckdb", "cycle")
    assert code == 2
    assert "DEU" in err


def test_time_without_zone_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A naive time would be guessed: it is refused."""
    with pytest.raises(SystemExit) as stop:
        main(["cycle", "--now", "2026-01-02T00:00:00"])
    assert stop.value.code == 2
    assert "zone" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["demo", "serve"])
def test_a_port_in_use_is_named_before_any_work(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What listens there is not disturbed and no demo store is filled for nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        store = f"duckdb:///{tmp_path}/p.duckdb"
        code, err = run(capsys, "--quiet", "--store", store, command, "--port", port)
    assert code == 1
    assert port in err
    assert "--port" in err
    assert command == "serve" or not (tmp_path / "p.duckdb").exists()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("finding list", "findings"), ("jbos", "jobs"), ("energy --by nod", "node"),
        ("recommendations aprove TT-1", "approve"), ("findings list --sort savings", "saving"),
        ("store backp file", "backup"),
    ],
)  # fmt: skip
def test_a_word_that_is_nearly_one_is_told(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The word that was meant, in place of all that there are."""
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith(f"is unknown; did you mean {meant}?\n")


@pytest.mark.parametrize("option", ["--store x", "--settings=x", "--quiet", "--debug"])
def test_an_option_that_comes_too_late_is_told_its_place(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of every command stand before it."""
    with pytest.raises(SystemExit):
        main(["jobs", *option.split()])
    name = option.replace("=", " ").split()[0]
    assert f"{name} stands before the command" in capsys.readouterr().err


def test_a_word_like_no_other_gets_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is guessed."""
    with pytest.raises(SystemExit):
        main(["xyzzy"])
    error = capsys.readouterr().err
    assert "did you mean" not in error
    assert "'recommendations'" in error
