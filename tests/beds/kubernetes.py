"""A real Kubernetes API on loopback: etcd, kube-apiserver, controllers and scheduler.

There is no kubelet. Pods are scheduled by the real scheduler; a thread does what is left of a kubelet's work and calls
them running. Every process is a child of the test process and ends with the bed.
"""

import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import requests
import yaml

READER = Path(__file__).parents[2] / "deploy" / "kubernetes-reader.yaml"
_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_USERS = {"admin": "system:masters", "reader": "", "nobody": ""}
_READY_SECONDS = 90.0
_KINDS = {
    "Namespace": ("api/v1", "namespaces"),
    "Node": ("api/v1", "nodes"),
    "Pod": ("api/v1", "pods"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "Job": ("apis/batch/v1", "jobs"),
    "CronJob": ("apis/batch/v1beta1", "cronjobs"),
    "HorizontalPodAutoscaler": ("apis/autoscaling/v1", "horizontalpodautoscalers"),
    "ClusterRole": ("apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    "ClusterRoleBinding": ("apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    "CustomResourceDefinition": ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
}
_WITHOUT_NAMESPACE = {
    "Namespace",
    "Node",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
}


def program_folder() -> Path:
    """Where the servers are, or a failure that says how to get them; never a skip."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = [
        Path(os.environ[name])
        for name in ("KUBEBUILDER_ASSETS", "KUBE_BIN_DIR")
        if os.environ.get(name)
    ]
    folders.append(cache / "trimtab" / "kubernetes-1.20.2")
    for folder in folders:
        if all((folder / name).is_file() for name in _PROGRAMS):
            return folder
    raise AssertionError(f"no {', '.join(_PROGRAMS)} in {folders}; as root: .ci/kubernetes")


@dataclass(slots=True, kw_only=True)
class KubernetesBed:
    """A running cluster without kubelets."""

    folder: Path
    port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    resources: dict[str, tuple[str, str]] = field(default_factory=lambda: dict(_KINDS))

    @property
    def url(self) -> str:
        """The address of the API."""
        return f"https://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, *, user: str = "admin", **options: Any) -> Any:
        """Give the answer's JSON; a refusal is an AssertionError with its status and words."""
        answer = requests.request(
            method,
            f"{self.url}/{path}",
            headers={"Authorization": f"Bearer {user}-token"} | options.pop("headers", {}),
            verify=str(self.folder / "certs" / "apiserver.crt"),
            timeout=30,
            **options,
        )
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:400]}"
        return answer.json()

    def kubeconfig(self, user: str) -> Path:
        """A kubeconfig file that signs in as admin, reader or nobody."""
        path = self.folder / f"{user}.kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bed",
            "clusters": [
                {
                    "name": "bed",
                    "cluster": {
                        "server": self.url,
                        "certificate-authority": str(self.folder / "certs" / "apiserver.crt"),
                    },
                }
            ],
            "users": [{"name": user, "user": {"token": f"{user}-token"}}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": user}}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def path_of(self, kind: str, namespace: str) -> str:
        """The path under which objects of a kind are listed and made."""
        group, plural = self.resources[kind]
        inside = "" if kind in _WITHOUT_NAMESPACE else f"namespaces/{namespace}/"
        return f"{group}/{inside}{plural}"

    def apply(self, *documents: dict[str, Any]) -> None:
        """Make objects; a definition of a custom resource is waited for."""
        for one in documents:
            kind, namespace = one["kind"], one["metadata"].get("namespace", "default")
            self.ask("POST", self.path_of(kind, namespace), json=one)
            if kind == "CustomResourceDefinition":
                spec = one["spec"]
                path = f"apis/{spec['group']}/{spec['versions'][0]['name']}"
                self.resources[spec["names"]["kind"]] = (path, spec["names"]["plural"])
                self.until(f"{path} is served", partial(self._serves, path, spec))

    def _serves(self, path: str, spec: dict[str, Any]) -> bool:
        try:
            return bool(self.ask("GET", f"{path}/{spec['names']['plural']}"))
        except AssertionError:
            return False

    def apply_file(self, path: Path) -> None:
        """Make every object of a YAML file."""
        self.apply(*filter(None, yaml.safe_load_all(path.read_text(encoding="utf-8"))))

    def patch_status(self, kind: str, namespace: str, name: str, status: dict[str, Any]) -> None:
        """Merge into an object's status."""
        self.ask(
            "PATCH",
            f"{self.path_of(kind, namespace)}/{name}/status",
            json={"status": status},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    def add_gpu_node(
        self,
        name: str,
        *,
        gpus: int = 8,
        product: str = "NVIDIA-H100-80GB-HBM3",
        memory_mib: int = 81559,
        mig: dict[str, int] | None = None,
        unschedulable: bool = False,
    ) -> None:
        """Add a node with GPUs, as device plugin and feature discovery would describe it."""
        capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        capacity |= {f"nvidia.com/mig-{one}": str(count) for one, count in (mig or {}).items()}
        labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": str(memory_mib)}
        node: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"unschedulable": True} if unschedulable else {},
        }
        self.apply(node)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        self.patch_status("Node", "", name, status)
        taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        self.ask(
            "PATCH",
            f"api/v1/nodes/{name}",
            json={"spec": {"taints": taints if unschedulable else None}},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    def pods(self) -> list[dict[str, Any]]:
        """Every pod."""
        found: list[dict[str, Any]] = self.ask("GET", "api/v1/pods")["items"]
        return found

    def until(self, what: str, holds: Callable[[], bool], seconds: float = _READY_SECONDS) -> None:
        """Wait until it holds, or fail with the end of the logs."""
        ends = time.monotonic() + seconds
        while not holds():
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended: {self._log(name)}"
            assert time.monotonic() < ends, f"not in {seconds} s: {what}; {self._log('scheduler')}"
            time.sleep(0.1)

    def _log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-800:] if path.exists() else ""

    def spawn(self, name: str, *command: str | Path) -> None:
        """Start a server of the bed."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(part) for part in command], stdout=log, stderr=log, cwd=self.folder
            )

    def end_all(self) -> None:
        """End the servers, the last one started first."""
        for process in reversed(self.processes.values()):
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def running_kubernetes() -> Iterator[KubernetesBed]:
    """A cluster whose `reader` has the rights of deploy/kubernetes-reader.yaml, `nobody` none."""
    binaries = program_folder()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kube-")))
        bed = KubernetesBed(folder=folder, port=_free_port())
        stack.callback(bed.end_all)
        _start(bed, binaries)
        bed.apply_file(READER)
        bed.apply(_binding("reader", "trimtab-reader"))
        stop = threading.Event()
        kubelet = threading.Thread(target=_run_pods, args=(bed, stop))
        kubelet.start()
        stack.callback(kubelet.join)
        stack.callback(stop.set)
        yield bed


def _start(bed: KubernetesBed, binaries: Path) -> None:
    folder, client, peer = bed.folder, _free_port(), _free_port()
    subprocess.run(
        ["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True
    )
    rows = [f'{user}-token,{user},uid-{user},"{group}"' for user, group in _USERS.items()]
    (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
    bed.spawn(
        "etcd",
        binaries / "etcd",
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
    )
    bed.spawn(
        "apiserver",
        binaries / "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{client}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={bed.port}",
        f"--cert-dir={folder}/certs",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder}/sa.key",
        f"--service-account-signing-key-file={folder}/sa.key",
        f"--token-auth-file={folder}/tokens.csv",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
    )
    bed.until("the API is ready", lambda: _ready(bed))
    common = (f"--kubeconfig={bed.kubeconfig('admin')}", "--leader-elect=false")
    closed = ("--port=0", "--secure-port=0")
    controllers = "deployment,replicaset,statefulset,job,cronjob"
    bed.spawn(
        "controllers",
        binaries / "kube-controller-manager",
        *common,
        *closed,
        f"--controllers={controllers}",
    )
    bed.spawn("scheduler", binaries / "kube-scheduler", *common, *closed)


def _ready(bed: KubernetesBed) -> bool:
    if not (bed.folder / "certs" / "apiserver.crt").exists():
        return False
    try:
        return bool(bed.ask("GET", "api/v1/namespaces/default"))
    except (requests.RequestException, OSError, AssertionError):
        return False


def _binding(user: str, role: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"bed-{user}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
    }


def _run_pods(bed: KubernetesBed, stop: threading.Event) -> None:
    """Do a kubelet's work: a pod that is bound runs."""
    while not stop.wait(0.2):
        try:
            for pod in bed.pods():
                if pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
                    _run(bed, pod)
        except (requests.RequestException, AssertionError):
            continue  # deleted meanwhile, or the bed ends


def _run(bed: KubernetesBed, pod: dict[str, Any]) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    containers = [
        {
            "name": one["name"],
            "image": one["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for one in pod["spec"]["containers"]
    ]
    ready = {"type": "Ready", "status": "True"}
    bed.patch_status(
        "Pod",
        pod["metadata"]["namespace"],
        pod["metadata"]["name"],
        {
            "phase": "Running",
            "startTime": now,
            "containerStatuses": containers,
            "conditions": [*pod["status"].get("conditions", []), ready],
        },
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
