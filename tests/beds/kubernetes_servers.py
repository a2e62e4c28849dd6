"""The processes of a Kubernetes test bed: where the programs are, their start, logs and end."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from beds.ports import free_ports

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
USERS = ("admin", "reader", "nobody")
_READY_SECONDS = 240.0
_END_SECONDS = 5.0
_LOG_CHARACTERS = 700
_SELDOM_SWEPT = {"GOGC": "400"}
"""Go then collects garbage less often: a tenth of the API server's CPU time."""


def program_folder() -> Path:
    """Where the servers are, or a failure that says how to get them: missing is no skip."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    named = [os.environ.get(name) for name in ("KUBEBUILDER_ASSETS", "KUBE_BIN_DIR")]
    folders = [Path(name) for name in named if name] + [cache / "trimtab" / "kubernetes-1.20.2"]
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in PROGRAMS):
            return folder
    looked = ", ".join(map(str, folders))
    raise AssertionError(f"no {', '.join(PROGRAMS)} in {looked}; run .ci/kubernetes as root")


@dataclass(slots=True, kw_only=True)
class Servers:
    """The servers of one bed, in the order of their start; `folder` holds their files and logs."""

    folder: Path
    programs: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def spawn(self, name: str, **options: object) -> None:
        """Start a program with `--option=value` for each option."""
        words = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        # A test process that is killed ends no bed: the kernel then ends the server (util-linux).
        bound = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with self._log(name).open("wb") as log:
            self.running[name] = subprocess.Popen(
                [*bound, self.programs / name, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | _SELDOM_SWEPT,
                start_new_session=True,  # an interrupted pytest ends them itself, in order
            )

    def until(self, what: str, holds: Callable[[], bool], seconds: float = _READY_SECONDS) -> None:
        """Wait until it holds, or fail with the ends of the logs."""
        ends = time.monotonic() + seconds
        while not holds():
            ended = [name for name, entry in self.running.items() if entry.poll() is not None]
            assert not ended, f"{ended} ended while waiting: {what}{self.log_ends()}"
            assert time.monotonic() < ends, f"not in {seconds:g} s: {what}{self.log_ends()}"
            time.sleep(0.05)

    def log_ends(self) -> str:
        """The last lines that each server wrote."""
        found = {name: self._log(name) for name in self.running}
        return "".join(
            f"\n--- {name} ---\n{path.read_text(errors='replace')[-_LOG_CHARACTERS:]}"
            for name, path in found.items()
            if path.exists()
        )

    def end_all(self) -> None:
        """End the servers, last started first: what is in flight has nobody left to answer."""
        for process in reversed(self.running.values()):
            process.terminate()
            try:
                process.wait(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=_END_SECONDS)
        self.running.clear()

    def version(self) -> tuple[int, int]:
        """Major and minor version of Kubernetes."""
        said = subprocess.run(
            [self.programs / "kube-apiserver", "--version"],
            capture_output=True,
            text=True,
            timeout=30,
        ).stdout
        match = re.search(r"v(\d+)\.(\d+)", said)
        assert match, f"kube-apiserver --version said {said!r}"
        return int(match[1]), int(match[2])

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def start_api(servers: Servers) -> int:
    """Start etcd and kube-apiserver, and give the API's port; it is not ready yet.

    The users of `USERS` sign in with the token `<user>-token`; only admin has rights.
    """
    folder = servers.folder
    client, peer, port = free_ports(3)
    subprocess.run(
        ["openssl", "genrsa", "-out", folder / "sa.key", "2048"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    groups = {"admin": ',"system:masters"'}
    rows = [f"{user}-token,{user},uid-{user}{groups.get(user, '')}\n" for user in USERS]
    (folder / "tokens.csv").write_text("".join(rows))
    servers.spawn(
        "etcd",
        data_dir=folder / "etcd",
        listen_client_urls=f"http://127.0.0.1:{client}",
        advertise_client_urls=f"http://127.0.0.1:{client}",
        listen_peer_urls=f"http://127.0.0.1:{peer}",
        initial_advertise_peer_urls=f"http://127.0.0.1:{peer}",
        initial_cluster=f"default=http://127.0.0.1:{peer}",
    )
    servers.spawn(
        "kube-apiserver",
        etcd_servers=f"http://127.0.0.1:{client}",
        bind_address="127.0.0.1",
        advertise_address="127.0.0.1",
        secure_port=port,
        cert_dir=folder / "certs",  # it writes a certificate of its own there
        service_cluster_ip_range="10.0.0.0/24",
        endpoint_reconciler_type="none",
        service_account_issuer="https://kubernetes.default.svc",
        service_account_key_file=folder / "sa.key",
        service_account_signing_key_file=folder / "sa.key",
        token_auth_file=folder / "tokens.csv",
        authorization_mode="RBAC",
        # Pods would have to wait for a controller that makes the accounts' tokens.
        disable_admission_plugins="ServiceAccount",
    )
    return port


def start_controllers(servers: Servers, kubeconfig: Path) -> None:
    """Start the controllers of workloads, and the scheduler."""
    # Before 1.24 they also listen on a fixed port without TLS, where two beds would collide.
    closed = {"port": 0} if servers.version() < (1, 24) else {}
    options = {"kubeconfig": kubeconfig, "leader_elect": "false", "secure_port": 0, **closed}
    servers.spawn(
        "kube-controller-manager",
        controllers="deployment,replicaset,statefulset,daemonset,job,cronjob,resourcequota",
        **options,
    )
    servers.spawn("kube-scheduler", **options)
