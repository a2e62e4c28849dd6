"""What `scontrol show job -d` says, and what may differ between two of its answers."""

import re

Shown = dict[str, str]
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w:/.-]*)=")
TIMES = {
    "RunTime", "LastSchedEval", "Scheduler", "AccrueTime", "EndTime", "SuspendTime",
    "SecsPreSuspend", "EligibleTime", "PreemptTime", "PreemptEligibleTime", "SchedNodeList",
    "Reason", "AllocNode:Sid",
}  # fmt: skip
"""What moves by itself, or with any hold. The reason is looked at apart."""
RUN = {
    "SubmitTime", "StartTime", "Restarts", "NodeList", "BatchHost", "JOB_GRES",
    "Nodes", "CPU_IDs", "GRES", "Mem", "ExitCode", "DerivedExitCode", "JobState", "ResizeTime",
}  # fmt: skip
"""What a requeue gives anew."""
HELD_GPUS = {"JOB_GRES", "Nodes", "NodeList", "CPU_IDs", "GRES", "Mem", "ResizeTime"}
"""What a running job gives back with a node."""
SIZE = {"TresPerNode", "TresPerJob", "TresPerTask", "NumNodes", "NumTasks", "NumCPUs", "TRES"}
HELD = ("JobHeldUser", "JobHeldAdmin", "job_requeued_in_held_state")
STUCK = ("BadConstraints", "PartitionNodeLimit", "PartitionTimeLimit")
_WEIGHT = re.compile(r",?billing=\d+")


def read(line: str) -> Shown:
    """Return the fields of one line of `scontrol -o show job -d`; the first of a name counts."""
    marks = list(_PAIR.finditer(line))
    ends = [mark.start() for mark in marks[1:]] + [len(line)]
    shown: Shown = {}
    for mark, end in zip(marks, ends, strict=True):
        shown.setdefault(mark[1], line[mark.end() : end].strip())
    # From 23.02 on ReqTRES and, once it runs, AllocTRES.
    later = [shown.pop(name, "") for name in ("AllocTRES", "ReqTRES")]
    tres = next((text for text in later if text not in ("", "(null)")), "")
    shown["TRES"] = _WEIGHT.sub("", shown.get("TRES", tres))
    if shown.get("JobState") == "PENDING":
        if "-" not in shown["NumNodes"]:
            shown["NumNodes"] = "estimate"  # no number of nodes was asked for
        shown["StartTime"] = "estimate" if shown.get("Priority") != "0" else "held"
    shown["Priority"] = "0" if shown.get("Priority") == "0" else "any"
    return shown


def nodes_asked(shown: Shown) -> str:
    """Return the nodes of the request: a requeued job shows those of its last run in NumNodes."""
    found = re.search(r"node=(\d+)", shown["TRES"])
    return found[1] if found else ""


def total(shown: Shown) -> int:
    """Return the GPUs that a job asks for, or holds when it runs."""
    found = re.search(r"gres/gpu=(\d+)", shown["TRES"])
    return int(found[1]) if found else 0


def differing(before: Shown, after: Shown, *, allowed: set[str]) -> list[str]:
    """Return `field before -> after` of every field that differs and may not."""
    found = []
    for field in sorted({*before, *after} - TIMES - allowed):
        then, now = before.get(field, ""), after.get(field, "")
        estimated = _requeued(after) or len(set(then.split("-"))) > 1
        if field == "NumNodes" and estimated and nodes_asked(before) == nodes_asked(after):
            continue  # the scheduler's estimate of a range, or what the last run had
        noted = then == "estimate" and after.get("Reason") == "BeginTime"
        if field == "NumNodes" and noted and nodes_asked(before) == nodes_asked(after):
            continue  # 24.11 notes n-n with an update of GPUs, until the scheduler looks
        if then != now:
            found.append(f"{field} {then!r} -> {now!r}")
    return found


def _requeued(shown: Shown) -> bool:
    return shown.get("JobState") == "PENDING" and shown.get("Restarts", "0") != "0"


def stuck(shown: Shown) -> str:
    """Return why a job will never start, '' when nothing keeps it."""
    if shown.get("JobState") != "PENDING":
        held = shown.get("JobState") in ("RUNNING", "SUSPENDED") and "Held" in shown["Reason"]
        return "held" if held else ""
    if shown["Reason"].startswith(STUCK):
        return shown["Reason"]
    return "held" if shown.get("Priority") == "0" else ""
