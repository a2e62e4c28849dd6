"""A placed job as a batch script for sbatch: the request in its head, the launch in its body."""

import re
import shlex

from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.launch import (
    ADDRESS,
    ENDPOINT,
    RUN,
    Reference,
    environment_of,
    launch_words,
)
from dashboard.submission.job.manifest import JobOrder, Manifest
from dashboard.submission.job.placement import Placement
from data.base.errors import ChangeRefusedError, scrub

_GRES_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_OPTION = re.compile(r"[A-Za-z0-9_.:/%+=@-]{1,400}")
_SHELL = {
    ADDRESS: '"$MASTER_ADDR"',
    ENDPOINT: '"$MASTER_ADDR:$MASTER_PORT"',
    RUN: '"$SLURM_JOB_ID"',
}


def slurm_script(
    job: JobFile, placement: Placement, order: JobOrder, *, home: str = ""
) -> Manifest:
    """Return the batch script. Errors: ChangeRefusedError for a gres type that sbatch cannot take.

    A job without a working directory starts in `home`, or where sbatch is run when that is ''.
    A gres request is of one type: where the nodes call the same GPU by several names, the first
    is taken.
    """
    gres = placement.words[0] if placement.words else ""
    if _GRES_TYPE.fullmatch(gres) is None:
        raise ChangeRefusedError(
            f"Slurm calls these GPUs {scrub(gres, limit=40)!r}", "Give gres a type in gres.conf."
        )
    launch = " ".join(
        _SHELL[word] if isinstance(word, Reference) else shlex.quote(word)
        for word in launch_words(job, placement, rank=None)
    )
    launch = f"srun --export=ALL --kill-on-bad-exit=1 {launch}"
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _options(job, placement, order, gres, home)),
        "set -euo pipefail",
        *(
            f"export {name}={shlex.quote(value)}"
            for name, value in sorted(environment_of(job, placement).items())
        ),
        'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        'MASTER_PORT="$((20000 + SLURM_JOB_ID % 20000))"',
        f"WORLD_SIZE={placement.plan.gpus}",
        "export MASTER_ADDR MASTER_PORT WORLD_SIZE",
        launch,
    ]
    return Manifest(
        target="slurm",
        name=job.name,
        text="\n".join(lines) + "\n",
        launch=launch,
        mark=order.mark,
        log=job.log,
    )


def _options(
    job: JobFile, placement: Placement, order: JobOrder, gres: str, home: str
) -> list[str]:
    """Return options of sbatch. Each is one word of plain characters, so that none can end it."""
    each = placement.gpus_per_node
    fair = (placement.fair_milli_cpus or 0) // 1000
    cpus = job.cpus_per_gpu * each if job.cpus_per_gpu else fair
    stated = job.memory_mib_per_gpu
    memory = round(stated * each * order.raised_host) if stated else placement.fair_memory_mib
    values = {
        "job-name": job.name,
        "comment": order.mark,
        "partition": order.partition,
        "account": order.account,
        "nodes": str(placement.node_count),
        "ntasks-per-node": "1",
        "gres": f"gpu:{gres}:{each}",
        "cpus-per-task": str(cpus) if cpus else "",
        "mem": f"{memory}M" if memory else "",
        "time": str(max(1, round(job.time_limit_hours * 60))) if job.time_limit_hours else "",
        "chdir": job.workdir or home,
        "output": job.log,
    }
    options = []
    for name, value in values.items():
        if value and _OPTION.fullmatch(value) is None:
            raise ChangeRefusedError(
                f"{name} of {job.name} is {scrub(value, limit=80)!r}",
                "Use letters, digits and '_./:%+=@-' only.",
            )
        if value:
            options.append(f"--{name}={value}")
    # The program must not inherit what stands in the environment of the one who submits.
    return [*options, "--export=NONE", "--no-requeue"]
