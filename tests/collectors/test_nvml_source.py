"""NVML through the real pynvml and a compiled library that answers what a scenario says."""

import ctypes
import math
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pynvml
import pytest
from beds.nvml import SOURCE, build, stub_library

from collectors.base import Window
from collectors.collect import collect_all
from collectors.nvml.findings import nvml_findings
from collectors.nvml.metrics import NvmlCollector
from collectors.nvml.sampler import NvmlSampler
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.collected import Collected
from data.energy_integration import counter_steps
from data.errors import (
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
)
from data.records.cluster import SourceState
from data.source_settings import NvmlSettings

RECORDED = Path(__file__).parents[1] / "recorded" / "nvml"
NOW = datetime(2026, 1, 8, 12, 0, 0, tzinfo=UTC)
WINDOW = Window(start=NOW - timedelta(minutes=5), end=NOW)
Play = Callable[..., None]

H100 = """\
gpu{0} name NVIDIA H100 80GB HBM3
gpu{0} uuid GPU-{0}
gpu{0} power_mw 300000
gpu{0} energy_mj 5000000
gpu{0} limit_mw 700000
gpu{0} sm_util 50
gpu{0} utilization 99
gpu{0} memory_total 85520809984
gpu{0} memory_used 1073741824
"""


@pytest.fixture(scope="session")
def library() -> Path:
    """One build serves all tests of a process: pynvml keeps the first library for good."""
    return stub_library()


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Play:
    """Makes the stub answer a recorded scenario by name, and further lines."""

    def scenario(recorded: str = "", lines: str = "") -> None:
        text = (RECORDED / f"{recorded}.scenario").read_text() if recorded else ""
        path = tmp_path / "played.scenario"
        path.write_text(text + lines, encoding="latin-1")
        monkeypatch.setenv("NVML_STUB_SCENARIO", str(path))

    return scenario


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """An empty proc file system."""
    root = tmp_path / "proc"
    root.mkdir()
    return root


def cgroup(proc: Path, pid: int, path: str) -> None:
    """Put a process there."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(f"0::{path}\n")


def collector(library: Path, proc: Path, mapping: str = "", **more: object) -> NvmlCollector:
    """A collector of that library on node n1 at NOW."""
    fields: dict[str, object] = {"clock": lambda: NOW, "gpm_gap_seconds": 0.0, **more}
    return NvmlCollector(
        NvmlSettings(enabled=True, library=str(library), mapping_directory=mapping),
        load_gpu_catalogue(),
        "n1",
        proc_root=proc,
        **fields,  # type: ignore[arg-type]
    )


def rows(collected: Collected) -> list[dict[str, object]]:
    """The samples as dictionaries."""
    return collected.samples.to_dict("records")


def stub(library: Path, name: str) -> int:
    """A counter of the stub itself."""
    return int(getattr(ctypes.CDLL(str(library)), name)())


def test_readings_carry_our_units(library: Path, play: Play, proc: Path) -> None:
    """mW, mJ, bytes and percent become W, J, MiB and 0..1; reserved memory is apart."""
    play("h100_two_boards")
    collected = collector(library, proc).collect(WINDOW)
    busy, idle = rows(collected)
    assert busy["sampled_at"] == pd.Timestamp(NOW)
    assert (busy["gpu_uuid"], busy["gpu_index"], busy["node"]) == (
        "GPU-11111111-2222-3333-4444-555555555501",
        "0",
        "n1",
    )
    assert busy["gpu_model"] == "H100-SXM5-80GB"
    assert busy["power_watts"] == 610.0
    assert busy["energy_joules"] == 987654.321
    assert busy["power_limit_watts"] == 700.0
    assert busy["memory_used_mib"] == 61440.0
    assert busy["memory_total_mib"] == 81559.0
    assert (busy["utilization_ratio"], busy["utilization_signal"]) == (0.635, "sm_active")
    assert (busy["mig_instance"], busy["mig_profile"], busy["job_id"]) == ("", "", "")
    assert (idle["power_watts"], idle["utilization_ratio"]) == (71.0, 0.0)
    assert collected.report.state is SourceState.RAN
    assert collected.report.dropped == ()
    assert collected.report.warnings == ()
    assert collected.report.completeness_ratio == 1.0


def test_init_and_shutdown_are_paired(library: Path, play: Play, proc: Path) -> None:
    """After a collection no session and no GPM sample is left, also when it failed."""
    play("h100_two_boards")
    collector(library, proc).collect(WINDOW)
    assert stub(library, "nvml_stub_sessions") == 0
    play(lines=H100.format(0) + "gpu0 lost_at nvmlDeviceGetPowerUsage\n")
    with pytest.raises(SourceUnreachableError):
        collector(library, proc).collect(WINDOW)
    assert stub(library, "nvml_stub_sessions") == 0
    assert stub(library, "nvml_stub_live_samples") == 0


def test_the_same_reading_has_the_same_batch_id(library: Path, play: Play, proc: Path) -> None:
    """Keeping a batch twice is harmless; another content is another batch."""
    play("h100_two_boards")
    first = collector(library, proc).collect(WINDOW).batch_id
    assert collector(library, proc).collect(WINDOW).batch_id == first
    play("h100_two_boards", "gpu1 power_mw 72000\n")
    assert collector(library, proc).collect(WINDOW).batch_id != first


@pytest.mark.parametrize(
    ("late", "stamp"),
    [(timedelta(seconds=2, microseconds=7), NOW), (timedelta(days=1), NOW + timedelta(days=1))],
)
def test_a_reading_is_stamped_with_now(
    library: Path, play: Play, proc: Path, late: timedelta, stamp: datetime
) -> None:
    """A window that just ended ends now; NVML does not pretend to know a past one."""
    play("h100_two_boards")
    collected = collector(library, proc, clock=lambda: NOW + late).collect(WINDOW)
    assert set(collected.samples["sampled_at"]) == {pd.Timestamp(stamp)}


def test_a_board_lost_in_the_middle_does_not_lose_the_others(
    library: Path, play: Play, proc: Path
) -> None:
    """The half-read board gives no row and is counted; its neighbours are whole."""
    play("h100_one_lost")
    collected = collector(library, proc).collect(WINDOW)
    assert [one["gpu_index"] for one in rows(collected)] == ["0", "2"]
    assert collected.report.dropped == (("nvmlDeviceGetPowerUsage: GpuIsLost", 1),)
    assert collected.report.completeness_ratio == pytest.approx(2 / 3)
    assert "GpuIsLost" in collected.report.warnings[0]


def test_a_lost_board_starts_its_activity_anew(library: Path, play: Play, proc: Path) -> None:
    """What was held of it is freed: its counters may have been reset when it comes back."""
    play("h100_one_lost")
    with collector(library, proc).reading() as read:
        assert read(lambda: NOW).boards_read == 2
        assert stub(library, "nvml_stub_live_samples") == 2
        assert read(lambda: NOW).boards_read == 2


def test_a_machine_whose_every_board_is_lost_fails(library: Path, play: Play, proc: Path) -> None:
    """No reading at all is no success: the report of the source says why."""
    play(lines=H100.format(0) + "gpu0 lost_at nvmlDeviceGetHandleByIndex_v2\n")
    (collected,) = collect_all([collector(library, proc)], WINDOW)
    assert collected.report.state is SourceState.FAILED
    assert "nvmlDeviceGetHandleByIndex: GpuIsLost" in collected.report.reason


def test_a_machine_without_boards_says_so(library: Path, play: Play, proc: Path) -> None:
    """A driver that sees no GPU ran well and gave nothing."""
    play(lines="system driver 550\n")
    collected = collector(library, proc).collect(WINDOW)
    assert collected.report.reason == "no GPU on this machine"
    assert collected.samples.empty


def test_boards_before_volta_have_no_energy(library: Path, play: Play, proc: Path) -> None:
    """No counter is unknown, not zero; the driver's rate stands in for SM activity."""
    play("p100_before_volta")
    collected = collector(library, proc).collect(WINDOW)
    (row,) = rows(collected)
    assert math.isnan(float(str(row["energy_joules"])))
    assert (row["utilization_ratio"], row["utilization_signal"]) == (0.42, "gpu_util")
    assert row["gpu_model"] == "Tesla P100-PCIE-16GB"
    assert collected.report.dropped == (("nvmlDeviceGetTotalEnergyConsumption: NotSupported", 1),)


@pytest.mark.parametrize(("code", "name"), [(3, "NotSupported"), (999, "Unknown"), (77, "code 77")])
def test_a_refused_call_loses_that_reading_only(
    library: Path, play: Play, proc: Path, code: int, name: str
) -> None:
    """The other readings of the board stay."""
    call = "nvmlDeviceGetEnforcedPowerLimit"
    play(lines=H100.format(0) + f"gpu0 error {call} {code}\n")
    collected = collector(library, proc).collect(WINDOW)
    (row,) = rows(collected)
    assert math.isnan(float(str(row["power_limit_watts"])))
    assert row["power_watts"] == 300.0
    assert collected.report.dropped == ((f"{call}: {name}", 1),)


def test_processes_without_permission_leave_the_job_unknown(
    library: Path, play: Play, proc: Path
) -> None:
    """The reading stays, the job is unknown, and the warning names the way out."""
    play(lines=H100.format(0) + "gpu0 error nvmlDeviceGetComputeRunningProcesses_v3 4\n")
    collected = collector(library, proc).collect(WINDOW)
    assert rows(collected)[0]["job_id"] == ""
    assert collected.report.dropped == (
        ("nvmlDeviceGetComputeRunningProcesses_v3: NoPermission", 1),
    )
    assert "hostPID" in collected.report.warnings[0]


def test_a_driver_that_stops_in_the_middle_is_a_lost_board(
    library: Path, play: Play, proc: Path
) -> None:
    """Uninitialized and DriverNotLoaded end the reading of the board."""
    play(
        lines=H100.format(0)
        + H100.format(1)
        + "gpu0 error nvmlDeviceGetMemoryInfo_v2 1\ngpu1 error nvmlDeviceGetMemoryInfo_v2 9\n"
    )
    with pytest.raises(SourceUnreachableError, match=r"Uninitialized.*DriverNotLoaded"):
        collector(library, proc).collect(WINDOW)


def test_mig_slots_may_be_empty(library: Path, play: Play, proc: Path) -> None:
    """Instances keep their ids over holes; board values repeat; MIG has no utilisation there."""
    play("a100_mig_holes")
    collected = collector(library, proc).collect(WINDOW)
    found = rows(collected)
    assert [(one["mig_instance"], one["mig_profile"]) for one in found] == [
        ("2", "3g.20gb"),
        ("9", "1g.5gb"),
        ("10", "1g.5gb"),
    ]
    assert {one["gpu_uuid"] for one in found} == {"GPU-22222222-2222-3333-4444-555555555501"}
    assert {one["power_watts"] for one in found} == {143.21}
    assert [one["memory_used_mib"] for one in found] == [5120.0, 1.0, 2.0]
    assert {one["gpu_model"] for one in found} == {"A100-SXM4-40GB"}
    assert collected.samples["utilization_ratio"].isna().all()
    assert collected.report.dropped == (("utilization: none on MIG", 3),)


def test_mig_instances_with_gpm_have_their_own_activity(
    library: Path, play: Play, proc: Path
) -> None:
    """Hopper gives SM activity per GPU instance."""
    play("a100_mig_holes", "gpu0.mig0 sm_util 80\ngpu0.mig2 sm_util 12.5\ngpu0.mig3 sm_util 0\n")
    found = rows(collector(library, proc).collect(WINDOW))
    assert [one["utilization_ratio"] for one in found] == [0.8, 0.125, 0.0]
    assert {one["utilization_signal"] for one in found} == {"sm_active"}


def test_activity_without_permission_falls_back(library: Path, play: Play, proc: Path) -> None:
    """Where profiling is for root alone, the driver's own rate stands in, and doctor says so."""
    play(lines=H100.format(0) + "gpu0 error nvmlGpmSampleGet 4\n")
    collected = collector(library, proc).collect(WINDOW)
    (row,) = rows(collected)
    assert (row["utilization_ratio"], row["utilization_signal"]) == (0.99, "gpu_util")
    assert collected.report.dropped == (("nvmlGpmSampleGet: NoPermission", 1),)
    assert stub(library, "nvml_stub_live_samples") == 0
    settings = NvmlSettings(enabled=True, library=str(library))
    found = {what: (state, detail) for what, state, detail in nvml_findings(settings)}
    state, detail = found["GPU 0 utilisation"]
    assert state == "missing"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in detail


@pytest.mark.parametrize("recorded", sorted(path.stem for path in RECORDED.glob("*.scenario")))
def test_every_recorded_machine_can_be_collected(
    library: Path, play: Play, proc: Path, recorded: str
) -> None:
    """One row per device, all of this node and moment, and the report adds up."""
    play(recorded)
    collected = collector(library, proc).collect(WINDOW)
    samples = collected.samples
    assert not samples.empty
    assert not samples.duplicated(["gpu_uuid", "mig_instance", "job_id"]).any()
    assert collected.report.samples == len(samples)
    assert (samples["power_watts"] <= samples["power_limit_watts"]).all()
    assert (samples["memory_used_mib"] <= samples["memory_total_mib"]).all()
    assert samples["power_watts"].gt(0).all()


def test_compute_instances_share_their_gpu_instance(library: Path, play: Play, proc: Path) -> None:
    """Two MIG devices of one GPU instance are one row, held by the jobs of both."""
    cgroup(proc, 11, "/system.slice/slurmstepd.scope/job_7/step_0")
    play(
        "a100_mig_holes",
        "gpu0.mig4 name NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb\ngpu0.mig4 uuid MIG-second\n"
        "gpu0.mig4 instance 2\ngpu0.mig4 process 11\n",
    )
    found = rows(collector(library, proc).collect(WINDOW))
    assert [(one["mig_instance"], one["job_id"]) for one in found] == [
        ("2", "slurm:7"),
        ("9", ""),
        ("10", ""),
    ]


def test_two_jobs_on_one_board_are_two_rows(library: Path, play: Play, proc: Path) -> None:
    """Every holder has its row; several processes of one job are one."""
    cgroup(proc, 11, "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0")
    cgroup(proc, 12, "/system.slice/slurmstepd.scope/job_7/step_0/user/task_1")
    pod = "0a1b2c3d-1111-2222-3333-444455556666"
    cgroup(proc, 13, f"/kubepods.slice/kubepods-pod{pod.replace('-', '_')}.slice/cri-containerd-x")
    processes = "".join(f"gpu0 process {pid}\n" for pid in (11, 12, 13, 14))
    play(lines=H100.format(0) + H100.format(1) + processes)
    collected = collector(library, proc).collect(WINDOW)
    assert [(one["gpu_index"], one["job_id"]) for one in rows(collected)] == [
        ("0", f"pod-uid:{pod}"),
        ("0", "slurm:7"),
        ("1", ""),
    ]
    assert [(one.job_id, one.gpu_count) for one in collected.jobs] == [("slurm:7", 1)]


def test_processes_of_another_pid_namespace_name_nobody(
    library: Path, play: Play, proc: Path
) -> None:
    """In a container the host's PID 11 is not our PID 11."""
    cgroup(proc, 11, "/system.slice/slurmstepd.scope/job_7")
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026532999]")
    play(lines=H100.format(0) + "gpu0 process 11\n")
    collected = collector(library, proc).collect(WINDOW)
    assert rows(collected)[0]["job_id"] == ""
    assert collected.report.dropped == (("process: not in the host's PID namespace", 1),)
    assert "hostPID" in collected.report.warnings[0]


@pytest.mark.parametrize(
    ("files", "processes", "expected", "dropped"),
    [
        ({"0": "41\n42\n"}, (), ["slurm:41", "slurm:42"], ()),
        ({"GPU-0": "43 1000\n", "0": "41\n"}, (), ["slurm:43"], ()),
        ({"0": "7\n41\n"}, (11,), ["slurm:41", "slurm:7"], ()),
        (
            {"0": "41\n"},
            (11,),
            ["slurm:7"],
            (("mapping file: contradicted by running processes", 1),),
        ),
        ({"0": "rm -rf\n"}, (), [""], (("mapping file: malformed", 1),)),
    ],
)
def test_mapping_files_name_the_jobs_of_a_board(
    library: Path,
    play: Play,
    proc: Path,
    tmp_path: Path,
    files: dict[str, str],
    processes: tuple[int, ...],
    expected: list[str],
    dropped: tuple[tuple[str, int], ...],
) -> None:
    """Files of the prolog count by UUID, then by index, unless running processes say otherwise."""
    cgroup(proc, 11, "/system.slice/slurmstepd.scope/job_7")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    play(lines=H100.format(0) + "".join(f"gpu0 process {pid}\n" for pid in processes))
    collected = collector(library, proc, str(tmp_path)).collect(WINDOW)
    assert [one["job_id"] for one in rows(collected)] == expected
    assert collected.report.dropped == dropped


def test_mapping_files_name_the_jobs_of_mig_instances(
    library: Path, play: Play, proc: Path, tmp_path: Path
) -> None:
    """`0.2` and `MIG-UUID` are instances; the board's own file is not theirs."""
    (tmp_path / "0.2").write_text("41\n")
    (tmp_path / "MIG-aaaaaaaa-2222-3333-4444-555555555502").write_text("42 1000\n")
    (tmp_path / "0").write_text("99\n")
    play("a100_mig_holes")
    found = rows(collector(library, proc, str(tmp_path)).collect(WINDOW))
    assert [one["job_id"] for one in found] == ["slurm:41", "slurm:42", ""]


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("gpu0 power_mw 4294967295", "power_watts", "power: blank"),
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
    steps = counter_steps(np.array([0.0, 2.0, 4.0]), np.array(energies, dtype=float), limit_w=700)
    assert steps.tolist() == [600.0, 250.0]


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
        from collectors.base import Window
        from collectors.nvml.metrics import NvmlCollector
        from data.catalogue.gpu_catalogue import load_gpu_catalogue
        from data.source_settings import NvmlSettings
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


class Ticking:
    """A clock that is a step later at every look."""

    def __init__(self, step: timedelta = timedelta(seconds=1)) -> None:
        self.now = NOW - timedelta(minutes=4)
        self.step = step

    def __call__(self) -> datetime:
        """A step later."""
        self.now += self.step
        return self.now


def until(true: Callable[[], bool]) -> None:
    """Wait, ten seconds at most."""
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline, "waited for ten seconds"
        time.sleep(0.01)


def test_a_sampler_gives_all_readings_since_the_last_collection(
    library: Path, play: Play, proc: Path
) -> None:
    """Readings of the window come once per window; asked again they come again."""
    play(lines=H100.format(0) + "gpu0 energy_step_mj 300000\n")
    clock = Ticking()
    with NvmlSampler(collector(library, proc, clock=clock), interval_seconds=0.01) as sampler:
        assert sampler.name == "nvml n1"
        until(lambda: clock.now > NOW - timedelta(minutes=3, seconds=50))
        assert sampler.stop()
        first = sampler.collect(WINDOW)
        again = sampler.collect(WINDOW)
        later = Window(start=clock.now - timedelta(seconds=3), end=NOW)
        rest = sampler.collect(later)
    assert len(first.samples) >= 10
    assert again.batch_id == first.batch_id
    assert len(rest.samples) == 3
    assert first.samples["energy_joules"].diff().dropna().tolist() == [300.0] * (
        len(first.samples) - 1
    )
    assert first.samples["sampled_at"].is_unique
    assert stub(library, "nvml_stub_sessions") == 0
    assert stub(library, "nvml_stub_live_samples") == 0


def test_a_reading_is_in_one_window(library: Path, play: Play, proc: Path) -> None:
    """Windows that meet between two whole seconds neither lose nor repeat a reading."""
    play(lines=H100.format(0))
    clock = Ticking(timedelta(milliseconds=300))
    with NvmlSampler(collector(library, proc, clock=clock), interval_seconds=0.005) as sampler:
        until(lambda: clock.now > NOW - timedelta(minutes=3, seconds=54))
        assert sampler.stop()
        middle = NOW - timedelta(minutes=3, seconds=57, milliseconds=200)
        whole = len(sampler.collect(WINDOW).samples)
        before = len(sampler.collect(Window(start=WINDOW.start, end=middle)).samples)
        after = len(sampler.collect(Window(start=middle, end=NOW)).samples)
    assert before
    assert after
    assert before + after == whole


def test_a_sampler_that_nobody_collects_from_keeps_the_newest(
    library: Path, play: Play, proc: Path
) -> None:
    """The buffer is bounded, and what it lost is counted."""
    play(lines=H100.format(0))
    clock = Ticking()
    with NvmlSampler(
        collector(library, proc, clock=clock), interval_seconds=0.01, capacity=3
    ) as sampler:
        until(lambda: clock.now > NOW - timedelta(minutes=3, seconds=50))
        assert sampler.stop()
        collected = sampler.collect(WINDOW)
    assert len(collected.samples) == 3
    assert collected.samples["sampled_at"].max() == pd.Timestamp(clock.now)
    ((reason, count),) = collected.report.dropped
    assert reason == "sampler: not collected in time"
    assert count >= 7


def test_a_sampler_says_why_it_cannot_read_and_recovers(
    library: Path, play: Play, proc: Path
) -> None:
    """A driver that is not loaded fails the collection; once it is, readings come."""
    play(lines="system error nvmlInitWithFlags 9\n")
    with NvmlSampler(collector(library, proc), interval_seconds=0.01) as sampler:
        time.sleep(0.05)
        with pytest.raises(SourceUnreachableError, match="DriverNotLoaded"):
            sampler.collect(WINDOW)
        play(lines=H100.format(0))
        until(lambda: stub(library, "nvml_stub_sessions") == 1)
        until(lambda: not sampler.collect(WINDOW).samples.empty)
    assert stub(library, "nvml_stub_sessions") == 0


def test_a_sampler_that_is_not_started_reads_now(library: Path, play: Play, proc: Path) -> None:
    """`trimtab cycle` needs no thread."""
    play(lines=H100.format(0))
    assert len(NvmlSampler(collector(library, proc)).collect(WINDOW).samples) == 1


def test_findings_of_a_healthy_machine(library: Path, play: Play, proc: Path) -> None:
    """Doctor sees the library, the driver and each board."""
    play("h100_two_boards")
    found = nvml_findings(NvmlSettings(enabled=True, library=str(library)), proc_root=proc)
    assert {state for _, state, _ in found} == {"ok"}
    assert ("NVIDIA driver", "ok", "550.90.07") in found
    assert [what for what, _, _ in found if what.startswith("GPU ")] == [
        "GPU 0",
        "GPU 0 utilisation",
        "GPU 1",
        "GPU 1 utilisation",
    ]


def test_findings_name_what_is_missing_and_the_fix(
    library: Path, play: Play, proc: Path, tmp_path: Path
) -> None:
    """A lost board, a refused call, a foreign PID namespace and a missing folder each have one."""
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026532999]")
    play(
        lines=H100.format(0)
        + H100.format(1)
        + "gpu0 error nvmlDeviceGetComputeRunningProcesses_v3 4\n"
        + "gpu1 lost_at nvmlDeviceGetPowerUsage\n"
    )
    settings = NvmlSettings(
        enabled=True, library=str(library), mapping_directory=str(tmp_path / "none")
    )
    missing = {
        what: detail
        for what, state, detail in nvml_findings(settings, proc_root=proc)
        if state == "missing"
    }
    assert "run as root" in missing["GPU 0 processes"]
    assert "GpuIsLost" in missing["GPU 1"]
    assert "hostPID: true" in missing["jobs of GPU processes"]
    assert "prolog" in missing["nvml.mapping_directory"]


def test_findings_of_mig(library: Path, play: Play, proc: Path) -> None:
    """The instances are listed."""
    play("a100_mig_holes")
    found = nvml_findings(NvmlSettings(enabled=True, library=str(library)), proc_root=proc)
    assert ("GPU 0 MIG", "ok", "3 instances: 2=3g.20gb, 9=1g.5gb, 10=1g.5gb") in found


def test_findings_without_a_library_are_one(tmp_path: Path) -> None:
    """Nothing else can be looked at."""
    settings = NvmlSettings(enabled=True, library=str(tmp_path / "none.so"))
    ((what, state, detail),) = nvml_findings(settings)
    assert (what, state) == ("NVML library", "missing")
    assert "Install the NVIDIA driver" in detail
