"""NVML: MIG instances, and which job holds what."""

from pathlib import Path

import pytest
from beds.nvml import H100, RECORDED, WINDOW, Play, cgroup, collector, rows, stub

from collectors.nvml.sampler import nvml_findings
from data.settings.sources import NvmlSettings


def test_mig_slots_may_be_empty(library: Path, play: Play, proc: Path) -> None:
    """Instances keep their ids over holes; board values repeat; MIG has no utilisation there."""
    play("a100_mig_holes")
    collected = collector(library, proc).collect(WINDOW)
    found = rows(collected)
    assert [(entry["mig_instance"], entry["mig_profile"]) for entry in found] == [
        ("2", "3g.20gb"),
        ("9", "1g.5gb"),
        ("10", "1g.5gb"),
    ]
    assert {entry["gpu_uuid"] for entry in found} == {"GPU-22222222-2222-3333-4444-555555555501"}
    assert {entry["power_watts"] for entry in found} == {143.21}
    assert [entry["memory_used_mib"] for entry in found] == [5120.0, 1.0, 2.0]
    assert {entry["gpu_model"] for entry in found} == {"A100-SXM4-40GB"}
    assert collected.samples["utilization_ratio"].isna().all()
    assert collected.report.dropped == (("utilization: none on MIG", 3),)


def test_mig_instances_with_gpm_have_their_own_activity(
    library: Path, play: Play, proc: Path
) -> None:
    """Hopper gives SM activity per GPU instance."""
    play("a100_mig_holes", "gpu0.mig0 sm_util 80\ngpu0.mig2 sm_util 12.5\ngpu0.mig3 sm_util 0\n")
    found = rows(collector(library, proc).collect(WINDOW))
    assert [entry["utilization_ratio"] for entry in found] == [0.8, 0.125, 0.0]
    assert {entry["utilization_signal"] for entry in found} == {"sm_active"}


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
    assert [(entry["mig_instance"], entry["job_id"]) for entry in found] == [
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
    assert [(row["gpu_index"], row["job_id"]) for row in rows(collected)] == [
        ("0", f"pod-uid:{pod}"),
        ("0", "slurm:7"),
        ("1", ""),
    ]
    assert [(job.job_id, job.gpu_count) for job in collected.jobs] == [("slurm:7", 1)]


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
    assert [row["job_id"] for row in rows(collected)] == expected
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
    assert [entry["job_id"] for entry in found] == ["slurm:41", "slurm:42", ""]
