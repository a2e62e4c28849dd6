"""Records what the installed Slurm answers, from a real cluster, into tests/recorded/slurm/RELEASE.

    PYTHONPATH=.:tests python tests/recorded/record_slurm.py

Needs the packages that tests/beds/slurm.py names. Another release than the installed one is
recorded inside a chroot or container that has it, with the repository copied in: nothing but
Python's standard library is needed there. Read the difference before keeping it.
"""

import json
import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

from beds.slurm import SlurmBed, running_slurm

from collectors.slurm.accounting import ACCOUNTING_FIELDS, SEPARATOR

HERE = Path(__file__).parent / "slurm"
SETTLED_SECONDS = 8


def submit_story(bed: SlurmBed) -> None:
    """Submit one job of every kind that reads differently, and wait until they have settled."""
    two = bed.submit("-N2", "--gres=gpu:h100:4", "-J", "two|nodes", "-t", "120")
    bed.submit("--array=0-3%1", "--gres=gpu:h100:1", "-J", "sweep")
    bed.submit("--gpus=2", "-C", "a100", "-J", "untyped", "-t", "90")
    again = bed.submit("--gres=gpu:h100:1", "-J", "again", "--requeue")
    bed.submit("--gres=gpu:h100:1", "-J", "short", seconds=1)
    cancelled = bed.submit("-N3", "--gres=gpu:h100:4", "-J", "cancelled")
    bed.submit("-N3", "--gres=gpu:h100:4", "-J", "waiting")
    bed.submit("-p", "cpu", "-J", "without-gpus")
    paused = bed.submit("--gres=gpu:h100:1", "-J", "paused")
    bed.run(
        "sbatch", "--parsable", "-o", "/dev/null", "-H", "-J", "het", "--gres=gpu:h100:1", ":",
        "--gres=gpu:a100:1", "--wrap=sleep 60",
    )  # fmt: skip
    bed.until(
        "jobs run", lambda: {bed.states()[name] for name in (two, again, paused)} == {"RUNNING"}
    )
    time.sleep(2)
    bed.run("scancel", cancelled)
    bed.run("scontrol", "suspend", paused)
    bed.run("scontrol", "requeue", again)
    bed.run("scontrol", "update", f"JobId={two}", "NumNodes=1")
    bed.run("scontrol", "update", "NodeName=cpu-01", "State=DRAIN", "Reason=disk 2 of 4 failed")
    time.sleep(SETTLED_SECONDS)


def asked_of_rest(bed: SlurmBed, path: str, token: str | None) -> tuple[int, str]:
    """Return status and body of a request."""
    headers = {"Accept": "application/json"}
    if token is not None:
        headers |= {"X-SLURM-USER-NAME": bed.plan.user, "X-SLURM-USER-TOKEN": token}
    request = urllib.request.Request(bed.rest_url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def compact(text: str) -> str:
    """Return JSON with one record a line, without the steps of jobs, which nothing here reads."""
    document = json.loads(text)
    for key in ("jobs", "nodes"):
        for record in document.get(key, []):
            record.pop("steps", None)
    lines = json.dumps(document, separators=(",", ":"), sort_keys=True)
    return re.sub(r"\},(?=\{\"(?:account|active_features|address|architecture)\")", "},\n", lines)


def record() -> None:
    """Record."""
    with running_slurm(accounting=True, rest=True) as bed:
        bed.environment["TZ"] = "UTC"
        release = ".".join(f"{part:02d}" for part in bed.plan.version)
        modern = bed.plan.version >= (23, 2)
        submit_story(bed)
        start = int(time.time()) - 3600
        nodes = ("scontrol", "show", "nodes", "--json") if modern else ("sinfo", "--json")
        files = {
            "squeue.json": compact(bed.run("squeue", "--json", "--states=all")),
            "nodes.json": compact(bed.run(*nodes)),
            "sacct.txt": bed.run(
                "sacct", "--parsable2", f"--delimiter={SEPARATOR}", "--noheader", "--duplicates",
                "--allocations", "--allusers", f"--format={','.join(ACCOUNTING_FIELDS)}",
                "--starttime=now-1hours",
            ),
            "config.txt": bed.run("scontrol", "show", "config"),
        }  # fmt: skip
        token = bed.token()
        openapi = "/openapi/v3" if modern else "/openapi"
        paths = json.loads(asked_of_rest(bed, openapi, token)[1])["paths"]
        files["openapi.json"] = json.dumps({"paths": {path: {} for path in paths}}, indent=0)
        version = max(re.findall(r"/slurm/(v0\.0\.\d+)/jobs", " ".join(paths)))
        duplicates = "&show_duplicates=true" if modern else ""
        for name, path in (
            ("rest-jobs.json", f"/slurm/{version}/jobs"),
            ("rest-nodes.json", f"/slurm/{version}/nodes"),
            ("rest-accounting.json", f"/slurmdb/{version}/jobs?start_time=uts{start}{duplicates}"),
        ):
            files[name] = compact(asked_of_rest(bed, path, token)[1])
        refusals = {
            "no token": asked_of_rest(bed, f"/slurm/{version}/jobs", None),
            "bad token": asked_of_rest(bed, f"/slurm/{version}/jobs", "eyJ.eyJ.x"),
            "unknown version": asked_of_rest(bed, "/slurm/v0.0.1/jobs", token),
            "unknown job": asked_of_rest(bed, f"/slurm/{version}/job/999999", token),
        }
        files["refusals.json"] = json.dumps(refusals, indent=1)
        _write(HERE / release, files, bed)


def _write(folder: Path, files: dict[str, str], bed: SlurmBed) -> None:
    """Write without the names of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    host = socket.gethostname().partition(".")[0]
    for name, text in files.items():
        plain = text.replace(str(bed.folder), "/bed").replace(
            str(bed.folder).replace("/", "\\/"), "/bed"
        )
        plain = re.sub(rf"\b{re.escape(host)}\b", "bed-host", plain)
        plain = re.sub(r'"operating_system":"[^"]*"', '"operating_system":"Linux"', plain)
        (folder / name).write_text(plain.rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
