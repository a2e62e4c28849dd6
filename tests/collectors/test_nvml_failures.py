"""NVML: what is no reading, and drivers that are missing, old or refuse."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pynvml
import pytest
from beds.nvml import H100, RECORDED, SOURCE, WINDOW, Play, build, collector, rows, stub

from collectors.nvml.sampler import NvmlCollector
from data.base.errors import (
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
)
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import NvmlSettings


@pytest.mark.parametrize(
    ("code", "reason"),
    [(999, "Unknown"), (4, "NoPermission"), (77, "code 77"), (3, ""), (13, "")],
)
def test_a_mode_that_is_not_answered_is_told(
    library: Path, play: Play, proc: Path, code: int, reason: str
) -> None:
    """Only a board or driver that knows no MIG is surely whole."""
    play(lines=f"{H100.format(0)}gpu0 error nvmlDeviceGetMigMode {code}\n")
    report = collector(library, proc).collect(WINDOW).report
    assert dict(report.dropped) == ({f"nvmlDeviceGetMigMode: {reason}": 1} if reason else {})


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("gpu0 power_mw 4294967295", "power_watts", "power: blank"),
        ("gpu0 power_mw 0", "power_watts", "power: zero"),
        ("gpu0 energy_mj 9223372036854775794", "energy_joules", "energy: blank"),
        ("gpu0 utilization 255", "utilization_ratio", "utilization: blank"),
        ("gpu0 memory_used 999999999999", "memory_used_mib", "memory used: more than there is"),
        ("gpu0 memory_total 18446744073709551615", "memory_total_mib", "memory total: blank"),
        ("gpu0 sm_util nan", "", "GPM SM_UTIL: no ratio"),
        ("gpu0 sm_util 4000", "", "GPM SM_UTIL: no ratio"),
    ],
)
def test_values_that_are_none_are_dropped_and_counted(
    library: Path, play: Play, proc: Path, line: str, column: str, reason: str
) -> None:
    """Blanks and impossible values never become numbers."""
    board = H100.format(0)
    if "sm_util" not in line:
        board = board.replace("gpu0 sm_util 50\n", "")
    play(lines=f"{board}{line}\n")
    collected = collector(library, proc).collect(WINDOW)
    if column:
        assert collected.samples[column].isna().all()
    else:
        assert set(collected.samples["utilization_signal"]) == {"gpu_util"}
    assert collected.report.dropped == ((reason, 1),)


def test_a_limit_of_zero_is_no_limit(library: Path, play: Play, proc: Path) -> None:
    """Zero is the driver's word for none."""
    play(lines=H100.format(0).replace("limit_mw 700000", "limit_mw 0"))
    samples = collector(library, proc).collect(WINDOW).samples
    assert samples["power_limit_watts"].isna().all()


def test_a_name_that_is_no_text_is_unknown(library: Path, play: Play, proc: Path) -> None:
    """A name in no UTF-8 is counted; the board is read."""
    play(lines=H100.format(0).replace("NVIDIA H100 80GB HBM3", "H100 \xff\xfe"))
    collected = collector(library, proc).collect(WINDOW)
    assert rows(collected)[0]["gpu_model"] == ""
    assert collected.report.dropped == (("nvmlDeviceGetName: not text", 1),)


def test_a_counter_that_starts_again_is_given_as_it_stands(
    library: Path, play: Play, proc: Path
) -> None:
    """A driver reload starts the counter at zero: the smaller reading counts from there."""
    energies = []
    for energy in (9_000_000_000, 9_000_600_000, 250_000):
        play(lines=H100.format(0) + f"gpu0 energy_mj {energy}\n")
        energies.append(rows(collector(library, proc).collect(WINDOW))[0]["energy_joules"])
    assert energies == [9_000_000.0, 9_000_600.0, 250.0]


@pytest.mark.parametrize(
    ("code", "error", "hint"),
    [
        (9, SourceUnreachableError, "modprobe nvidia"),
        (18, SourceUnreachableError, "reboot"),
        (4, SourceRefusedError, "/dev/nvidiactl"),
        (13, UnexpectedAnswerError, "nvml.library"),
        (999, SourceUnreachableError, "dmesg"),
    ],
)
def test_a_library_that_does_not_start_names_the_fix(
    library: Path, play: Play, proc: Path, code: int, error: type[Exception], hint: str
) -> None:
    """Each refusal of nvmlInit has its own way out."""
    play(lines=f"system error nvmlInitWithFlags {code}\n")
    with pytest.raises(error, match=hint):
        collector(library, proc).collect(WINDOW)
    assert stub(library, "nvml_stub_sessions") == 0


def test_a_library_path_that_is_no_library_is_a_setting(tmp_path: Path, proc: Path) -> None:
    """The setting is named, and what the loader said."""
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    with pytest.raises(SourceNotConfiguredError, match=r"nvml.library .*--gpus all"):
        collector(tmp_path / "libnvidia-ml.so.1", proc).collect(WINDOW)


def test_a_machine_without_driver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, proc: Path
) -> None:
    """Where the loader finds no libnvidia-ml.so.1 the fix is the driver, or the runtime's flag."""

    def not_found(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", not_found)
    with pytest.raises(SourceNotConfiguredError, match=r"LibraryNotFound.*NVIDIA driver"):
        NvmlCollector(
            NvmlSettings(enabled=True), load_gpu_catalogue(), "n1", proc_root=proc
        ).collect(WINDOW)


def test_an_old_driver_lacks_functions(tmp_path: Path) -> None:
    """Symbols that a library has not yet are counted, and older calls stand in."""
    library = build(tmp_path, "-DOLD_DRIVER")
    program = textwrap.dedent(
        """
        import sys
        from datetime import UTC, datetime, timedelta
        from collectors.shared.collector import Window
        from collectors.nvml.sampler import NvmlCollector
        from data.catalogue.gpu_catalogue import load_gpu_catalogue
        from data.settings.sources import NvmlSettings
        end = datetime(2026, 1, 8, tzinfo=UTC)
        settings = NvmlSettings(enabled=True, library=sys.argv[1])
        one = NvmlCollector(settings, load_gpu_catalogue(), "n1", clock=lambda: end)
        found = one.collect(Window(start=end - timedelta(minutes=5), end=end))
        row = found.samples.iloc[0]
        print(row["memory_used_mib"], row["utilization_signal"], *found.report.dropped, sep="|")
        """
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(library)],
        cwd=SOURCE.parents[3],
        env={"NVML_STUB_SCENARIO": str(RECORDED / "p100_before_volta.scenario")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert answer.stdout.strip().split("|") == [
        "1024.0",
        "gpu_util",
        "('nvmlDeviceGetComputeRunningProcesses_v3: FunctionNotFound', 1)",
        "('nvmlDeviceGetMemoryInfo_v2: FunctionNotFound', 1)",
        "('nvmlDeviceGetTotalEnergyConsumption: NotSupported', 1)",
    ]
