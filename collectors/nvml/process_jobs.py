"""Jobs of processes on this node, read from their control groups.

The outermost group decides: root makes it. What a job's owner may create below it (delegation of
cgroup v2), or anywhere under user.slice, names nobody.
"""

import re
from dataclasses import dataclass
from pathlib import Path

POD_LABEL = "pod-uid:"
"""Prefix of a holder that is known by its pod's UID only."""

_HEX = "[0-9a-f]"
_POD = re.compile(
    rf"(?:[a-z-]*kubepods(?:-besteffort|-burstable)?-)?pod"
    rf"({_HEX}{{8}}[-_]{_HEX}{{4}}[-_]{_HEX}{{4}}[-_]{_HEX}{{4}}[-_]{_HEX}{{12}}|{_HEX}{{32}})"
    rf"(?:\.slice)?"
)
_JOB = re.compile(r"job_([0-9]{1,10})")
_UID = re.compile(r"uid_[0-9]{1,10}")
_USERS_OWN = re.compile(r"user\.slice|user@[0-9]+\.service|user-[0-9]+\.slice")
_MAX_FILE = 65_536
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's fixed number of the host's own PID namespace (PROC_PID_INIT_INO)."""


def holder_in_path(path: str) -> str:
    """Return the holder that one cgroup path names: `slurm:ID`, `pod-uid:UID` or ''.

    cgroup v1 `/slurm/uid_1000/job_123/step_0`, v2 `/system.slice/slurmstepd.scope/job_123/...`,
    `/kubepods/burstable/podUID/...`, `/kubepods.slice/kubepods-podUID_.slice/...` and the same
    under a nested kubelet.
    """
    parts = path.split("/")
    under_kubelet = False
    for position, part in enumerate(parts):
        if _USERS_OWN.fullmatch(part):
            return ""
        under_kubelet = under_kubelet or "kubepods" in part
        pod = _POD.fullmatch(part) if under_kubelet else None
        if pod:
            return POD_LABEL + pod[1].replace("_", "-")
        job = _JOB.fullmatch(part)
        if job and _made_by_slurm(parts[:position]):
            return f"slurm:{int(job[1])}"
    return ""


def _made_by_slurm(above: list[str]) -> bool:
    """Return whether the groups above a job_N group are those that slurmd makes (v2, then v1)."""
    if above and above[-1].endswith("slurmstepd.scope"):
        return True
    return len(above) > 1 and bool(_UID.fullmatch(above[-1])) and above[-2].startswith("slurm")


def holder_in_cgroup(text: str) -> str:
    """Return the holder that the text of /proc/PID/cgroup names; '' when none or several do."""
    paths = (line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2)
    holders = {holder for path in paths if (holder := holder_in_path(path))}
    return holders.pop() if len(holders) == 1 else ""


@dataclass(frozen=True, slots=True)
class ProcessJobs:
    """Processes of one proc file system."""

    proc_root: Path = Path("/proc")

    def sees_the_host(self) -> bool:
        """Return whether PIDs here are the host's: NVML speaks of those, also inside a container.

        With other PIDs the process of that number is somebody else. Unknown counts as yes.
        """
        for process in ("1", "self"):
            try:
                namespace = (self.proc_root / process / "ns" / "pid").readlink()
            except OSError:
                continue
            return str(namespace) == _INITIAL_PID_NAMESPACE
        return True

    def holder(self, pid: int) -> tuple[str, str]:
        """Return (holder or '', why it could not be read or ''). A vanished process is no error."""
        try:
            with (self.proc_root / str(pid) / "cgroup").open("rb") as file:
                text = file.read(_MAX_FILE).decode("utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return "", ""
        except PermissionError:
            return "", "process: no permission"
        except OSError as error:
            return "", f"process: {error.strerror or 'unreadable'}"
        return holder_in_cgroup(text), ""
