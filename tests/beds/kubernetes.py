"""A real Kubernetes API on loopback: etcd, kube-apiserver, controllers and scheduler.

Only the kubelet is none: pods that the real scheduler binds are called running, no container is
started. Every process is a child of the test process and ends with the bed.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import yaml
from beds.kubernetes_kubelet import FakeKubelet
from beds.kubernetes_servers import USERS, Servers, program_folder, start_api, start_controllers

READER_MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes-reader.yaml"
_RBAC = "rbac.authorization.k8s.io"
_MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
_KNOWN = {
    "Namespace": "v1",
    "Node": "v1",
    "Pod": "v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
}


@dataclass(slots=True, kw_only=True)
class KubernetesBed:
    """A running cluster. Kinds are named as in manifests; `admin` asks unless told otherwise.

    A kind outside the core, apps and batch groups is known once an object of it was applied.
    """

    servers: Servers
    port: int
    api_versions: dict[str, str] = field(default_factory=lambda: dict(_KNOWN))
    resources: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    sessions: dict[int, requests.Session] = field(default_factory=dict)
    claims: Path | None = None
    """Where test files say which namespaces are theirs; shared by the workers of a run."""

    @property
    def folder(self) -> Path:
        """Where the bed's files are; it goes with the bed."""
        return self.servers.folder

    @property
    def url(self) -> str:
        """The address of the API."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """The certificate that the API made itself: also the authority that vouches for it."""
        return self.folder / "certs" / "apiserver.crt"

    def token(self, user: str) -> str:
        """The bearer token of admin, reader or nobody."""
        assert user in USERS, f"{user} is none of {USERS}"
        return f"{user}-token"

    def kubeconfig(self, user: str) -> Path:
        """A kubeconfig file that signs in as admin, reader or nobody."""
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        context = {"cluster": "bed", "user": user, "namespace": "default"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bed",
            "clusters": [{"name": "bed", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "bed", "context": context}],
        }
        path = self.folder / f"{user}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    def answer(
        self, method: str, path: str, *, user: str = "admin", **options: Any
    ) -> requests.Response:
        """Return what the API answers to a user, refusals included."""
        headers = {"Authorization": f"Bearer {self.token(user)}", **options.pop("headers", {})}
        return self._session().request(
            method,
            f"{self.url}/{path}",
            headers=headers,
            verify=str(self.certificate),
            timeout=30,
            **options,
        )

    def close(self) -> None:
        """Close the connections of all threads."""
        for session in self.sessions.values():
            session.close()
        self.sessions.clear()

    def claim(self, namespace: str) -> None:
        """Keep a namespace for the test file that runs; the file of another claim is told.

        Which files share a cluster depends on the worker, so a clash would fail in few runs.
        """
        if self.claims is None:
            return
        self.claims.mkdir(exist_ok=True)
        file = os.environ["PYTEST_CURRENT_TEST"].split("::")[0]
        place = self.claims / namespace
        with suppress(FileExistsError):
            place.symlink_to(file)
        owner = str(place.readlink())
        assert owner == file, f"namespace {namespace} of {file} is taken by {owner}: choose another"

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer's JSON; a refusal is an AssertionError with its status and words."""
        answer = self.answer(method, path, **options)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:600]}"
        return answer.json()

    def apply(self, *documents: str | dict[str, Any]) -> None:
        """Make the objects, or merge into those that exist: dicts, or YAML of one or several.

        A merge adds and changes; it removes nothing. Statuses are left out: see patch_status. A
        definition of custom resources is waited for.
        """
        for document in documents:
            several = yaml.safe_load_all(document) if isinstance(document, str) else [document]
            for entry in filter(None, several):
                self._apply(entry)

    def get(self, kind: str, name: str, *, namespace: str = "default") -> dict[str, Any]:
        """Return an object."""
        found: dict[str, Any] = self.ask("GET", self.path(kind, namespace, name))
        return found

    def pods(self) -> list[dict[str, Any]]:
        """Return every pod."""
        return self.list("Pod")

    def list(self, kind: str, *, namespace: str | None = None) -> list[dict[str, Any]]:
        """Return the objects of a kind, of all namespaces unless one is named."""
        found: list[dict[str, Any]] = self.ask("GET", self.path(kind, namespace))["items"]
        return found

    def patch(
        self, kind: str, name: str, change: dict[str, Any], *, namespace: str = "default"
    ) -> None:
        """Merge into an object; None removes a key."""
        self.ask("PATCH", self.path(kind, namespace, name), json=change, headers=_MERGE_PATCH)

    def patch_status(
        self, kind: str, name: str, status: dict[str, Any], *, namespace: str = "default"
    ) -> None:
        """Merge into an object's status."""
        path = f"{self.path(kind, namespace, name)}/status"
        self.ask("PATCH", path, json={"status": status}, headers=_MERGE_PATCH)

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object; what it owns stays, as no garbage collector runs."""
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        self.ask("DELETE", self.path(kind, namespace, name), params=grace)

    def add_gpu_node(
        self,
        name: str,
        *,
        gpus: int = 8,
        product: str = "NVIDIA-H100-80GB-HBM3",
        memory_mib: int = 81559,
        mig: dict[str, int] | None = None,
        cpus: int = 64,
        unschedulable: bool = False,
    ) -> None:
        """Add a node as NVIDIA's device plugin and feature discovery describe it.

        `mig` counts the slices by profile (`3g.40gb`), beside the `gpus` that are whole.
        """
        capacity = {"cpu": str(cpus), "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        capacity |= {f"nvidia.com/mig-{profile}": str(n) for profile, n in (mig or {}).items()}
        labels = {
            "kubernetes.io/hostname": name,
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.memory": str(memory_mib),
            "nvidia.com/gpu.count": str(gpus),
        }
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": {"unschedulable": unschedulable},
            }
        )
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        self.patch_status("Node", name, status)
        # A new node is tainted as not ready, and no controller of nodes runs that would change it.
        cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        self.patch("Node", name, {"spec": {"taints": [cordon] if unschedulable else None}})

    def until(self, what: str, holds: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until it holds, or fail with the pods that do not run and the ends of the logs."""
        try:
            self.servers.until(what, holds, seconds)
        except AssertionError as error:
            waiting = [
                (pod["metadata"]["name"], pod["status"].get("conditions"))
                for pod in self.list("Pod")
                if pod["status"].get("phase") == "Pending"
            ]
            raise AssertionError(f"{error}\npending pods: {waiting}") from error

    def path(self, kind: str, namespace: str | None = None, name: str = "") -> str:
        """The path of a kind's list, or of an object; `namespace` is ignored where none fits."""
        assert kind in self.api_versions, f"{kind} is none of {sorted(self.api_versions)}"
        version = self.api_versions[kind]
        resource = self._resource(version, kind)
        assert resource, f"the API serves no {version} {kind}"
        parts = ["api" if version == "v1" else "apis", version]
        if resource["namespaced"] and namespace is not None:
            parts += ["namespaces", namespace]
        parts += [resource["name"], name]
        return "/".join(filter(None, parts))

    def _apply(self, one: dict[str, Any]) -> None:
        kind, meta = one["kind"], one["metadata"]
        self.api_versions[kind] = one["apiVersion"]
        namespace = meta.get("namespace", "default")
        made = self.answer("POST", self.path(kind, namespace), json=one)
        if made.status_code == requests.codes.conflict:
            self.patch(kind, meta["name"], one, namespace=namespace)
        else:
            assert made.ok, f"{kind} {meta['name']}: {made.status_code} {made.text[:600]}"
        if kind == "CustomResourceDefinition":
            spec = one["spec"]
            for version in spec["versions"]:
                self._await_custom(f"{spec['group']}/{version['name']}", spec["names"]["kind"])

    def _await_custom(self, version: str, kind: str) -> None:
        self.api_versions[kind] = version
        self.until(f"{version} {kind} is named", lambda: self._resource(version, kind) != {})
        # Named is not yet served: for a moment the path answers 404.
        path = self.path(kind)
        self.until(f"{path} is served", lambda: self.answer("GET", path).ok)

    def _session(self) -> requests.Session:
        """Return the connections of this thread, kept: a handshake costs more than most answers."""
        thread = threading.get_ident()
        if thread not in self.sessions:
            self.sessions[thread] = requests.Session()
            self.sessions[thread].trust_env = False  # a proxy of this machine leads elsewhere
        return self.sessions[thread]

    def _resource(self, version: str, kind: str) -> dict[str, Any]:
        """What discovery says of a kind; nothing when it says nothing."""
        if (version, kind) not in self.resources:
            named = self.answer("GET", f"{'api' if version == 'v1' else 'apis'}/{version}")
            for entry in named.json().get("resources", []) if named.ok else []:
                if "/" not in entry["name"]:  # the others are subresources
                    self.resources[version, entry["kind"]] = entry
        return self.resources.get((version, kind), {})


@contextmanager
def running_kubernetes() -> Iterator[KubernetesBed]:
    """A cluster without nodes; `reader` has the rights of deploy/kubernetes-reader.yaml."""
    programs = program_folder()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kubernetes-")))
        servers = Servers(folder=folder, programs=programs)
        stack.callback(servers.end_all)
        bed = KubernetesBed(servers=servers, port=start_api(servers))
        stack.callback(bed.close)
        servers.until("the API is ready", lambda: _ready(bed))
        start_controllers(servers, bed.kubeconfig("admin"))
        bed.apply(READER_MANIFEST.read_text(encoding="utf-8"))
        bed.apply(_binding("reader", "trimtab-reader"))
        kubelet = FakeKubelet(bed=bed)
        thread = threading.Thread(target=kubelet.run, name="kubelet")
        thread.start()
        stack.callback(thread.join, timeout=60)
        stack.callback(kubelet.stop.set)
        yield bed


def _ready(bed: KubernetesBed) -> bool:
    if not bed.certificate.exists():
        return False
    try:
        return all(bed.answer("GET", path).ok for path in ("readyz", "api/v1/namespaces/default"))
    except (requests.ConnectionError, requests.Timeout):
        return False


def _binding(user: str, role: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"bed-{user}"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": _RBAC}],
    }
