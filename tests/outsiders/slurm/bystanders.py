"""What a real Slurm shows of all that no change is about, before changes and after."""

from collections.abc import Collection

from beds.slurm import SlurmBed
from outsiders.slurm import oracle

Records = dict[tuple[str, str], oracle.Shown]
_KINDS = {
    "job": "JobId", "node": "NodeName", "partition": "PartitionName", "reservation":
    "ReservationName",
}  # fmt: skip
_ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED")
_STARTS = {
    *oracle.RUN, *oracle.HELD_GPUS, "NumNodes", "NumTasks", "NumCPUs", "TRES", "Priority",
    "MinMemoryCPU", "MinMemoryNode", "ArrayTaskId",
}  # fmt: skip
"""What a waiting job shows otherwise once it starts, or a task of its array does."""
_NODE_SETTINGS = {
    "AvailableFeatures", "ActiveFeatures", "Gres", "Weight", "Partitions", "Comment",
    "Extra", "CPUTot", "RealMemory", "Owner", "Port",
}  # fmt: skip
"""What somebody sets; the rest of a node goes with its jobs."""


def records(bed: SlurmBed) -> Records:
    """Return every job, node, partition and reservation that scontrol shows, by kind and name."""
    shown: Records = {}
    for kind, name in _KINDS.items():
        text = bed.run("scontrol", "-o", "-d", "show", kind, check=False)
        for line in text.splitlines():
            if line.startswith(f"{name}="):
                row = oracle.read(line)
                shown[kind, row[name]] = row
    return shown


def changed(before: Records, after: Records, targets: Collection[str]) -> list[str]:
    """Return what differs of objects that no change was about.

    `targets` are names of nodes and numbers of jobs. A waiting job may start in the room that a
    change has made; an array is a target with any of its tasks.
    """
    arrays = {
        row["ArrayJobId"]
        for (_kind, name), row in before.items()
        if name in targets and "ArrayJobId" in row
    }
    found = []
    for (kind, name), row in before.items():
        over = kind == "job" and row["JobState"] not in _ALIVE  # Slurm forgets it after a while
        if over or name in targets or row.get("ArrayJobId") in arrays:
            continue
        then = after.get((kind, name))
        if then is None:
            found.append(f"{kind} {name} is gone")
            continue
        allowed = set[str]()
        if kind == "node":
            allowed = {*row, *then} - _NODE_SETTINGS
            if ("DRAIN" in row["State"]) != ("DRAIN" in then["State"]):
                found.append(f"node {name}: State {row['State']!r} -> {then['State']!r}")
        elif row.get("JobState") == "PENDING":
            allowed = _STARTS if then["JobState"] in _ALIVE else allowed
            allowed = allowed | ({"Partition"} if "," in row["Partition"] else set())
        found += [f"{kind} {name}: {text}" for text in oracle.differing(row, then, allowed=allowed)]
    return found
