"""A real Slurm cluster (Debian packages) on loopback: nodes with GPUs that are none.

Nothing of /etc/slurm is read or written. Clients need only `bed.conf` as SLURM_CONF. Every daemon
is a child of the test process and ends with the bed; keys and ports are its own.
"""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from beds.ports import free_ports
from beds.slurm_database import database_folder, start_database
from beds.slurm_files import NODES, BedNode, BedPlan, BedPorts, write_bed

_READY_SECONDS = 180.0
_END_SECONDS = 15.0
_MOST_CHARACTERS = 40
_PACKAGES = (
    "slurm-wlm slurmctld slurmd slurmdbd slurmrestd slurm-client munge mariadb-server "
    "slurm-wlm-mysql-plugin slurm-wlm-jwt-plugin"
)
_UP = {"idle", "mixed", "allocated"}


def program(name: str) -> str:
    """The program, or a failure that says how to get it: a missing server is no skip."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    assert found, f"{name} is not installed; as root: apt-get install {_PACKAGES}"
    return found


@dataclass(slots=True, kw_only=True)
class SlurmBed:
    """A running cluster."""

    folder: Path
    plan: BedPlan
    environment: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        """The slurm.conf of this cluster."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def rest_url(self) -> str:
        """The address of slurmrestd."""
        return f"http://127.0.0.1:{self.plan.ports.rest}"

    def mapping(self, kind: str = "hpc_job") -> dict[str, str]:
        """What prologs wrote: `node/gpu` to the text of the file; kind hpc_job or gpustat."""
        folder = self.folder / kind
        found = {}
        for path in sorted(folder.glob("*/*")):
            try:
                text = path.read_text().strip()
            except FileNotFoundError:
                continue  # an epilog was faster
            if text:  # a prolog makes the file before it writes
                found[str(path.relative_to(folder))] = text
        return found

    def run(self, *command: str, check: bool = True) -> str:
        """Return the standard output of a Slurm command."""
        done = self._done(command)
        assert not check or done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
        return done.stdout.rstrip("\n")

    def words(self, *command: str) -> str:
        """Return all that a Slurm command says, whatever came of it."""
        done = self._done(command)
        return done.stderr + done.stdout

    def _done(self, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program(command[0]), *command[1:]],
            env=self.environment,
            cwd=self.folder / "run",
            capture_output=True,
            text=True,
            timeout=180,
        )

    def submit(self, *options: str, seconds: int = 600) -> str:
        """Submit a job that sleeps, and give its raw id."""
        job = self.run(
            "sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap=sleep {seconds}"
        )
        return job.partition(";")[0]

    def states(self) -> dict[str, str]:
        """State by workload (`12` or `12_3`), of every job that the controller remembers."""
        rows = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%i %T").splitlines()
        return dict(row.split() for row in rows)

    def until(self, what: str, holds: Callable[[], bool], seconds: float = _READY_SECONDS) -> None:
        """Wait until it holds, or fail with the end of the logs."""
        ends = time.monotonic() + seconds
        while not holds():
            for name, daemon in self.daemons.items():
                assert daemon.poll() is None, f"{name} ended: {self.log(name)}"
            assert time.monotonic() < ends, f"not in {seconds} s: {what}; {self.log('slurmctld')}"
            time.sleep(0.05)

    def spawn(self, name: str, *command: str, **environment: str) -> None:
        """Start a daemon."""
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                [program(command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment | environment,
                cwd=self.folder / "run",
                start_new_session=True,
            )

    def end(self, name: str) -> None:
        """End a daemon and wait for it."""
        daemon = self.daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(timeout=_END_SECONDS)

    def end_all(self) -> None:
        """End jobs first, so that no job step survives, then the daemons, last started first."""
        if {"slurmctld"} | {f"slurmd-{node.name}" for node in self.plan.nodes} <= set(self.daemons):
            self.run("scancel", "--quiet", "-u", self.plan.user, check=False)
            ends = time.monotonic() + _END_SECONDS
            while time.monotonic() < ends and self.run(
                "squeue", "-h", "-t", "R,CG,S,CF", check=False
            ):
                time.sleep(0.1)
        for name in reversed(list(self.daemons)):
            self.end(name)
        self._end_strays()

    def _end_strays(self) -> None:
        """Kill the jobs that a test left without a controller: their environment names this bed."""
        mark = str(self.conf).encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                other = int(process.name) != os.getpid()
                if other and mark in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # ended meanwhile, or another user's

    def token(self, seconds: int = 600) -> str:
        """Return a JWT of the bed's own user."""
        answer = self.run("scontrol", "token", f"username={self.plan.user}", f"lifespan={seconds}")
        return answer.partition("=")[2]

    def log(self, name: str) -> str:
        """Return the end of what a daemon wrote."""
        found = [self.folder / "log" / f"{name}.{ending}" for ending in ("out", "log")]
        return "".join(path.read_text(errors="replace")[-600:] for path in found if path.exists())


@contextmanager
def running_slurm(
    *,
    nodes: Sequence[BedNode] = NODES,
    accounting: bool = False,
    rest: bool = False,
    further: str = "",
) -> Iterator[SlurmBed]:
    """A cluster: controller and nodes; `accounting` adds slurmdbd, `rest` slurmrestd with JWT."""
    with ExitStack() as stack:
        # A short folder: the path of a UNIX socket must stay under 108 bytes.
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir=_short()))
        )
        folder.chmod(0o755)
        plan = BedPlan(
            folder=folder,
            user=pwd.getpwuid(os.geteuid()).pw_name,
            ports=_ports(len(nodes)),
            nodes=tuple(nodes),
            accounting=accounting,
            version=_version(),
            further=further,
        )
        write_bed(plan)
        bed = SlurmBed(folder=folder, plan=plan, environment=_environment(folder))
        stack.callback(bed.end_all)
        _start(bed, rest=rest)
        yield bed


def _short() -> str:
    """Return the folder for temporary files, or /tmp where its name is long."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < _MOST_CHARACTERS else "/tmp"  # noqa: S108 TemporaryDirectory makes one there


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return kept | {
        "SLURM_CONF": str(folder / "etc" / "slurm.conf"),
        "LC_ALL": "C.UTF-8",
        # slurmdbd can be told a host, not a socket: the client library takes it from here.
        "MYSQL_UNIX_PORT": str(folder / "run" / "mysql.sock"),
    }


def _start(bed: SlurmBed, *, rest: bool) -> None:
    run = bed.folder / "run"
    bed.spawn(
        "munged", "munged", "--foreground", f"--socket={run}/munge.sock",
        f"--key-file={bed.folder}/etc/munge.key", f"--log-file={bed.folder}/log/munged.log",
        f"--pid-file={run}/munged.pid", f"--seed-file={run}/munged.seed",
    )  # fmt: skip
    if bed.plan.accounting:
        start_database(bed, database_folder(bed))
    bed.until(
        "munged", lambda: bed.run("munge", "-n", "-S", f"{run}/munge.sock", check=False) != ""
    )
    if bed.plan.accounting:
        bed.spawn("slurmdbd", "slurmdbd", "-D")
        bed.until("slurmdbd", lambda: _listening(bed.plan.ports.accounting))
    bed.spawn("slurmctld", "slurmctld", "-D", "-i")
    bed.until("slurmctld", lambda: "is UP" in bed.run("scontrol", "ping", check=False))
    for node in bed.plan.nodes:
        bed.spawn(f"slurmd-{node.name}", "slurmd", "-D", "-N", node.name)
    bed.until("nodes", lambda: _nodes_up(bed) == len(bed.plan.nodes))
    if rest:
        # slurmrestd refuses to be the user of the cluster: right on a site, in the way here.
        bed.spawn(
            "slurmrestd", "slurmrestd", "-a", "rest_auth/jwt", f"127.0.0.1:{bed.plan.ports.rest}",
            SLURMRESTD_SECURITY="disable_user_check", SLURM_JWT="daemon",
        )  # fmt: skip
        bed.until("slurmrestd", lambda: _listening(bed.plan.ports.rest))


def _nodes_up(bed: SlurmBed) -> int:
    rows = bed.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
    return len({row.split()[0] for row in rows if row.split()[1] in _UP})


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _version() -> tuple[int, int]:
    said = subprocess.run([program("slurmctld"), "-V"], capture_output=True, text=True, timeout=30)
    match = re.search(r"(\d+)\.(\d+)", said.stdout)
    assert match, f"slurmctld -V said {said.stdout!r}"
    return int(match[1]), int(match[2])


def _ports(nodes: int) -> BedPorts:
    first, second, third, *others = free_ports(nodes + 3)
    return BedPorts(controller=first, accounting=second, rest=third, nodes=tuple(others))
