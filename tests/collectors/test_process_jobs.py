"""Who a process on a node belongs to, and which mapping files are believed."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.nvml.job_mapping_files import MappingFiles, booted_at
from collectors.nvml.process_jobs import ProcessJobs, holder_in_cgroup, holder_in_path

POD = "0a1b2c3d-1111-2222-3333-444455556666"
UNDERSCORED = POD.replace("-", "_")


@pytest.mark.parametrize(
    ("path", "holder"),
    [
        ("/slurm/uid_1000/job_123/step_0", "slurm:123"),
        ("/slurm_n1/uid_0/job_9/step_batch/task_0", "slurm:9"),
        ("/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", "slurm:123"),
        ("/system.slice/n1_slurmstepd.scope/job_123/", "slurm:123"),
        ("/../../system.slice/slurmstepd.scope/job_4/step_0", "slurm:4"),
        (f"/kubepods/besteffort/pod{POD}/0123abc", f"pod-uid:{POD}"),
        (f"/kubepods/pod{POD}/0123abc", f"pod-uid:{POD}"),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice",
            f"pod-uid:{POD}",
        ),
        (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-0.scope", f"pod-uid:{POD}"),
        (
            f"/docker/7/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/1",
            f"pod-uid:{POD}",
        ),
        (f"/kubepods/burstable/pod{'ab' * 16}/1", f"pod-uid:{'ab' * 16}"),
        ("/", ""),
        ("/system.slice/sshd.service", ""),
        ("/system.slice/slurmd.service", ""),
        ("/system.slice/slurmstepd.scope/system", ""),
        (f"/docker/pod{POD}", ""),
        ("/job_5", ""),
        ("/somebody/job_5", ""),
    ],
)
def test_a_control_group_names_its_holder(path: str, holder: str) -> None:
    """Slurm and Kubernetes, cgroup v1 and v2, both drivers of the kubelet."""
    assert holder_in_path(path) == holder


@pytest.mark.parametrize(
    ("path", "holder"),
    [
        ("/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1", ""),
        (f"/user.slice/user-1000.slice/kubepods/pod{POD}", ""),
        ("/system.slice/slurmstepd.scope/job_7/step_0/slurmstepd.scope/job_1", "slurm:7"),
        (f"/kubepods/pod{POD}/slurm/uid_0/job_1", f"pod-uid:{POD}"),
        ("/slurm/uid_x/job_1", ""),
        ("/system.slice/slurmstepd.scope/job_99999999999999999999", ""),
        ("/system.slice/slurmstepd.scope/job_1;rm", ""),
        ("/system.slice/slurmstepd.scope/job_١", ""),
    ],
)
def test_a_group_that_a_user_made_names_nobody(path: str, holder: str) -> None:
    """Root makes the outer groups; names below a job or in a user's own slice do not count."""
    assert holder_in_path(path) == holder


def test_lines_that_name_different_holders_name_none() -> None:
    """One holder over all controllers is believed; two are not."""
    agreeing = (
        "9:cpuset:/slurm/uid_1/job_5/step_0\n8:devices:/slurm/uid_1/job_5\n1:name=systemd:/\n"
    )
    assert holder_in_cgroup(agreeing) == "slurm:5"
    assert holder_in_cgroup(agreeing + "7:memory:/slurm/uid_1/job_6\n") == ""


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    """What is no control group names nobody."""
    assert holder_in_cgroup(text) == ""
    assert holder_in_cgroup("0::/system.slice/slurmstepd.scope/job_3/\n" + text) in {"slurm:3", ""}


def test_a_process_that_vanished_is_no_error(tmp_path: Path) -> None:
    """It held the GPU a moment ago; nobody does now."""
    assert ProcessJobs(tmp_path).holder(4242) == ("", "")


def test_this_process_can_be_read() -> None:
    """The real /proc has our own control group."""
    _, reason = ProcessJobs().holder(os.getpid())
    assert reason == ""


def test_a_control_group_that_cannot_be_read_has_a_reason(tmp_path: Path) -> None:
    """A folder in place of the file is a failure to count."""
    (tmp_path / "5" / "cgroup").mkdir(parents=True)
    assert ProcessJobs(tmp_path).holder(5) == ("", "process: Is a directory")


def test_bytes_that_are_no_text_name_nobody(tmp_path: Path) -> None:
    """A file of noise is read to its limit and names nobody."""
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "cgroup").write_bytes(b"\xff\xfe\x00:" * 100_000)
    assert ProcessJobs(tmp_path).holder(5) == ("", "")


@pytest.mark.parametrize(
    ("namespace", "host"), [("pid:[4026531836]", True), ("pid:[4026532999]", False), ("", True)]
)
def test_the_hosts_pid_namespace_is_known_by_its_number(
    tmp_path: Path, namespace: str, host: bool
) -> None:
    """The kernel gives the first namespace a fixed number; unknown counts as the host."""
    if namespace:
        (tmp_path / "1" / "ns").mkdir(parents=True)
        (tmp_path / "1" / "ns" / "pid").symlink_to(namespace)
    assert ProcessJobs(tmp_path).sees_the_host() is host


@pytest.mark.parametrize(
    ("content", "holders", "reasons"),
    [
        ("123\n", ("slurm:123",), []),
        ("123 1000\n", ("slurm:123",), []),
        ("123 1000", ("slurm:123",), []),
        ("123\n124\n123\n", ("slurm:123", "slurm:124"), []),
        ("  123\t1000 \r\n\n", ("slurm:123",), []),
        ("", (), []),
        ("\n", (), []),
        ("job 123\n", (), ["mapping file: malformed"]),
        ("123\nx\n", (), ["mapping file: malformed"]),
        ("123 1000 5\n", (), ["mapping file: malformed"]),
        ("-1\n", (), ["mapping file: malformed"]),
        ("1" * 11, (), ["mapping file: malformed"]),
        ("1\n" * 3000, (), ["mapping file: malformed"]),
        ("١٢٣\n", (), ["mapping file: malformed"]),
        ('1"} evil 1\n', (), ["mapping file: malformed"]),
    ],
)
def test_a_mapping_file_is_believed_only_whole(
    tmp_path: Path, content: str, holders: tuple[str, ...], reasons: list[str]
) -> None:
    """Both habits of prologs are read; one odd line and nothing of the file counts."""
    (tmp_path / "0").write_text(content, encoding="utf-8")
    files = MappingFiles(tmp_path)
    assert files.holders(("0",)) == holders
    assert files.reasons == reasons


def test_a_file_from_before_the_last_boot_is_stale(tmp_path: Path) -> None:
    """An epilog that never ran leaves a job that is long gone."""
    now = time.time()
    (tmp_path / "0").write_text("123\n")
    os.utime(tmp_path / "0", (now, now - 100))
    fresh, stale = MappingFiles(tmp_path, now - 200), MappingFiles(tmp_path, now - 50)
    assert fresh.holders(("0",)) == ("slurm:123",)
    assert stale.holders(("0",)) == ()
    assert stale.reasons == ["mapping file: older than the last boot"]


def test_the_last_boot_is_read_from_proc(tmp_path: Path) -> None:
    """A proc file system without it leaves the age of files unjudged."""
    assert booted_at(tmp_path) is None
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1767870000\nprocesses 7\n")
    assert booted_at(tmp_path) == 1_767_870_000.0
    real = booted_at(Path("/proc"))
    assert real is None or real <= time.time()


def test_a_fifo_a_link_and_a_folder_are_no_mapping_files(tmp_path: Path) -> None:
    """A file that would block or lead elsewhere is refused and counted; the next name is tried."""
    os.mkfifo(tmp_path / "0")
    (tmp_path / "secret").write_text("5\n")
    (tmp_path / "1").symlink_to(tmp_path / "secret")
    (tmp_path / "2").mkdir()
    (tmp_path / "3").write_text("7\n")
    files = MappingFiles(tmp_path)
    assert files.holders(("0", "1", "2", "absent", "3")) == ("slurm:7",)
    assert files.reasons == [
        "mapping file: no regular file",
        "mapping file: Too many levels of symbolic links",
        "mapping file: no regular file",
    ]
