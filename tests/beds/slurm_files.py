"""The files of a throw-away Slurm cluster: its configuration, keys, devices and prolog."""

import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

ROOT = os.environ.get("TRIMTAB_SLURM_ROOT", "")
"""A folder with another release of Slurm (`.ci/slurm` makes it), '' for the one installed here.

Its folder `outside` holds a program for each of Slurm's, which runs the one inside: it leads the
PATH of the tests. /tmp is one folder inside and outside, so that one configuration serves.
"""
PLUGINS = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm")


@dataclass(frozen=True, slots=True, kw_only=True)
class BedNode:
    """One node that its slurmd pretends to be. `shares` of its GPUs: shard or mps, and how many."""

    name: str
    gpu_type: str = ""
    gpus: int = 0
    shares: tuple[str, int] | None = None
    cpus: int = 32
    memory_mib: int = 256_000
    features: str = ""


NODES = (
    BedNode(name="h100-01", gpu_type="h100", gpus=4, features="h100,nvlink"),
    BedNode(name="h100-02", gpu_type="h100", gpus=4, features="h100,nvlink"),
    BedNode(name="h100-05", gpu_type="h100", gpus=4, features="h100,nvlink"),
    BedNode(name="a100-01", gpu_type="a100", gpus=2, features="a100"),
    BedNode(name="cpu-01", features="cpuonly"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BedPorts:
    """Loopback ports of the daemons; `nodes` in the order of the nodes."""

    controller: int
    accounting: int
    rest: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BedPlan:
    """What a bed is made of. `further` is appended to slurm.conf."""

    folder: Path
    user: str
    ports: BedPorts
    nodes: tuple[BedNode, ...]
    accounting: bool
    version: tuple[int, int]
    further: str = ""


def write_bed(plan: BedPlan) -> None:
    """Write everything that the daemons read."""
    for name in ("etc", "run", "log", "state", "spool", "dev", "hpc_job", "gpustat"):
        (plan.folder / name).mkdir(parents=True)
    for node in plan.nodes:
        for name in ("spool", "dev", "hpc_job", "gpustat"):
            (plan.folder / name / node.name).mkdir()
    etc = plan.folder / "etc"
    for name, size in (("munge.key", 1024), ("jwt.key", 32)):
        (etc / name).write_bytes(secrets.token_bytes(size))
        (etc / name).chmod(0o600)
    (etc / "plugstack.conf").write_text("")
    modern = plan.version >= (23, 11)
    (etc / "cgroup.conf").write_text("CgroupPlugin=disabled\n" if modern else "")
    (etc / "gres.conf").write_text(_devices(plan))
    (etc / "slurm.conf").write_text(_controller(plan))
    if plan.accounting:
        (etc / "slurmdbd.conf").write_text(_accounting(plan))
        (etc / "slurmdbd.conf").chmod(0o600)
    _scripts(plan)


def _devices(plan: BedPlan) -> str:
    """Symlinks to /dev/null pass for GPUs, so that jobs are given indices without any hardware."""
    lines = []
    for node in plan.nodes:
        if not node.gpus:
            continue
        folder = plan.folder / "dev" / node.name
        for index in range(node.gpus):
            (folder / f"nvidia{index}").symlink_to("/dev/null")
        files = f"{folder}/nvidia[0-{node.gpus - 1}]"
        lines.append(f"NodeName={node.name} Name=gpu Type={node.gpu_type} File={files}\n")
        if node.shares:
            name, count = node.shares
            lines.append(f"NodeName={node.name} Name={name} Count={count}\n")
    return "".join(lines)


def _controller(plan: BedPlan) -> str:
    here, host = plan.folder, socket.gethostname().partition(".")[0]
    shares = {node.shares[0] for node in plan.nodes if node.shares}
    lines = [
        "ClusterName=bed",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={plan.ports.controller}",
        f"SlurmUser={plan.user}",
        f"SlurmdUser={plan.user}",
        # A requeued job waits until its old credential has expired: 5 s is the least accepted.
        f"AuthInfo=socket={here}/run/munge.sock,cred_expire=5",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={here}/etc/jwt.key",
        f"StateSaveLocation={here}/state",
        f"SlurmdSpoolDir={here}/spool/%n",
        f"SlurmctldPidFile={here}/run/slurmctld.pid",
        f"SlurmdPidFile={here}/run/slurmd-%n.pid",
        f"SlurmctldLogFile={here}/log/slurmctld.log",
        f"SlurmdLogFile={here}/log/slurmd-%n.log",
        f"PlugStackConfig={here}/etc/plugstack.conf",
        f"PluginDir={PLUGINS}",
        f"Prolog={here}/etc/prolog",
        f"Epilog={here}/etc/epilog",
        "PrologFlags=Alloc",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/linux",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        f"GresTypes={','.join(('gpu', *sorted(shares)))}",
        "DefMemPerCPU=100",
        "SlurmdParameters=config_overrides",
        "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,permit_job_expansion",
        "PriorityType=priority/basic",
        "ReturnToService=2",
        "KillWait=1",
        "CompleteWait=0",
        "MailProg=/bin/true",
    ]
    if plan.accounting:
        types = sorted({f"gres/gpu:{node.gpu_type}" for node in plan.nodes if node.gpus})
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={plan.ports.accounting}",
            # The controller takes the munge socket of this connection from here, not AuthInfo.
            f"AccountingStoragePass={here}/run/munge.sock",
            f"AccountingStorageTRES=gres/gpu,{','.join(types)}",
        ]
    for node, port in zip(plan.nodes, plan.ports.nodes, strict=True):
        gres = f" Gres=gpu:{node.gpu_type}:{node.gpus}" if node.gpus else ""
        gres += f",{node.shares[0]}:{node.shares[1]}" if node.shares else ""
        lines.append(
            f"NodeName={node.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={node.cpus} SocketsPerBoard=1 CoresPerSocket={node.cpus} ThreadsPerCore=1 "
            f"RealMemory={node.memory_mib} Feature={node.features}{gres} State=UNKNOWN"
        )
    limits = "MaxTime=1-00:00:00 DefaultTime=01:00:00"
    lines += [
        f"PartitionName=gpu Nodes={_names(plan, with_gpus=True)} Default=YES {limits} State=UP",
        f"PartitionName=cpu Nodes={_names(plan, with_gpus=False)} MaxTime=UNLIMITED State=UP",
        plan.further,
    ]
    return "\n".join(lines) + "\n"


def _names(plan: BedPlan, *, with_gpus: bool) -> str:
    return ",".join(node.name for node in plan.nodes if bool(node.gpus) == with_gpus)


def _accounting(plan: BedPlan) -> str:
    here, host = plan.folder, socket.gethostname().partition(".")[0]
    return f"""AuthType=auth/munge
AuthInfo=socket={here}/run/munge.sock
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={here}/etc/jwt.key
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={plan.ports.accounting}
SlurmUser={plan.user}
LogFile={here}/log/slurmdbd.log
PidFile={here}/run/slurmdbd.pid
PluginDir={PLUGINS}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc=slurm_acct_db
StorageUser={plan.user}
"""


def _scripts(plan: BedPlan) -> None:
    """Mapping files as sites write them: dcgm-exporter's by GPU, jobstats' with the user id.

    All nodes share one machine here, hence a folder for each node.
    """
    here = plan.folder
    opening = '#!/bin/sh\nPATH=/usr/bin:/bin\nfor gpu in $(echo "$SLURM_JOB_GPUS" | tr , " "); do\n'
    mapping = f'"{here}/hpc_job/$SLURMD_NODENAME/$gpu"'
    status = f'"{here}/gpustat/$SLURMD_NODENAME/$gpu"'
    bodies = {
        "prolog": f'echo "$SLURM_JOB_ID" > {mapping}\n'
        f'echo "$SLURM_JOB_ID $SLURM_JOB_UID" > {status}\n',
        "epilog": f"rm -f {mapping} {status}\n",
    }
    for name, body in bodies.items():
        script = here / "etc" / name
        script.write_text(f"{opening}{body}done\n")
        script.chmod(0o755)
