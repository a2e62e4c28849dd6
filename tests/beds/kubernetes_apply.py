"""What the applier works on: workloads of the Kubernetes bed, accounts of deploy/, a bad line."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests
import yaml
from beds.kubernetes import KubernetesBed
from beds.steps import send_step
from factories import H100, make_recommendation

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.clock import utc_now
from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
from data.records.actions import Action
from data.records.changes import Change, ReadBack, Rehearsal, StepOutcome, VerificationResult
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.settings.apply import KubernetesApplySettings

APPLIER_MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes-applier.yaml"
GPU = "nvidia.com/gpu"
_PATIENCE_SECONDS = 240.0


def settings_of(kubeconfig: Path, **changes: Any) -> KubernetesApplySettings:
    """Settings of an applier that signs in with a kubeconfig."""
    values: dict[str, Any] = {"enabled": True, "kubeconfig": str(kubeconfig)}
    return KubernetesApplySettings(**(values | changes))


def account_kubeconfig(bed: KubernetesBed, account: str, *, server: str = "") -> Path:
    """A kubeconfig that signs in as a ServiceAccount of `default`, by a token made for it."""
    path = f"api/v1/namespaces/default/serviceaccounts/{account}/token"
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    request = kind | {"spec": {"expirationSeconds": 86_400}}  # campaigns take more than an hour
    token = bed.ask("POST", path, json=request)["status"]["token"]
    cluster = (
        {"server": server}
        if server
        else {"server": bed.url, "certificate-authority": str(bed.certificate)}
    )
    document = {
        "current-context": "only",
        "clusters": [{"name": "only", "cluster": cluster}],
        "users": [{"name": "only", "user": {"token": token}}],
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
    }
    found = bed.folder / f"{account}{'-by-proxy' if server else ''}.kubeconfig"
    found.write_text(yaml.safe_dump(document), encoding="utf-8")
    return found


def bind_in(bed: KubernetesBed, namespace: str) -> None:
    """Make a namespace that the applying account may change, of this test file alone."""
    bed.claim(namespace)
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    binding = next(
        entry
        for entry in yaml.safe_load_all(APPLIER_MANIFEST.read_text(encoding="utf-8"))
        if entry["kind"] == "RoleBinding"
    )
    binding["metadata"]["namespace"] = namespace
    bed.apply(binding)


def pod_spec(gpus: int, *, resource: str = GPU, requests: bool = True, **more: Any) -> Any:
    """A pod of a container without GPUs, and one that holds them.

    Without a nodeSelector no scheduler binds it: it would take the GPUs of another test's node.
    """
    quantity = {resource: str(gpus)}
    resources = {"limits": quantity} | ({"requests": quantity} if requests else {})
    unbound = {} if "nodeSelector" in more else {"schedulerName": "none"}
    return unbound | {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "proxy", "image": "example/proxy:1"},
            {"name": "main", "image": "example/serve:1", "resources": resources},
        ],
        **more,
    }


def deployment(
    namespace: str, *, replicas: int, pod: Any, name: str = "serve", **spec: Any
) -> dict[str, Any]:
    """A Deployment."""
    return replicated("Deployment", namespace, replicas=replicas, pod=pod, name=name, **spec)


def replicated(
    kind: str, namespace: str, *, replicas: int, pod: Any, name: str = "serve", **spec: Any
) -> dict[str, Any]:
    """A Deployment or StatefulSet."""
    labels = {"app": f"{namespace}-{name}"}
    more = {"serviceName": name} if kind == "StatefulSet" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **more,
            **spec,
        },
    }


def gpus(count: int, *, profile: str = "", model: str = H100) -> Configuration:
    """So many GPUs."""
    return Configuration(gpu_model=model, gpu_count=count, mig_profile=profile)


def proposal(
    job_id: str, now: Configuration, proposed: Configuration, **changes: Any
) -> Recommendation:
    """A recommendation for a workload of the bed, made after all that is made meanwhile."""
    action = Action.RECLAIM if proposed.gpu_count == 0 else Action.FEWER_GPUS
    planned_at = utc_now() + timedelta(hours=1)
    made = {"created_at": planned_at, "expires_at": planned_at + timedelta(hours=24)}
    return make_recommendation(
        job_id=job_id, now=now, proposed=proposed, **({"action": action} | made | changes)
    )


def room(bed: KubernetesBed, namespace: str, count: int) -> dict[str, Any]:
    """Make a namespace and a node with GPUs; give the selector that keeps to the node."""
    bind_in(bed, namespace)
    bed.add_gpu_node(f"node-{namespace}", gpus=count)
    return {"nodeSelector": {"kubernetes.io/hostname": f"node-{namespace}"}}


def rolled_out(bed: KubernetesBed, namespace: str, name: str = "serve") -> None:
    """Wait until a Deployment is as it wants to be."""

    def holds() -> bool:
        found = bed.get("Deployment", name, namespace=namespace)
        status, wanted = found["status"], found["spec"]["replicas"]
        return (
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("readyReplicas", 0) == wanted == status.get("updatedReplicas", 0)
            and status.get("replicas", 0) == wanted
        )

    bed.until(f"{namespace}/{name} is rolled out", holds, seconds=_PATIENCE_SECONDS)


def planned(applier: KubernetesApplier, recommendation: Recommendation) -> Change:
    """The change as it is approved."""
    return applier.change_for(recommendation, applier.look(recommendation, job=None, gpus=()))


def carry_out(applier: KubernetesApplier, change: Change) -> ReadBack:
    """Send every step when its turn has come, and look until the outcome is known."""
    assert rehearsed(applier, change).refusals == ()
    for step in change.steps:
        result = send_step(applier, step, change)
        assert result.outcome is StepOutcome.DONE, result
    return settled(applier, change, len(change.steps))


def rehearsed(applier: KubernetesApplier, change: Change) -> Rehearsal:
    """Rehearse, again where a controller wrote to the object in between, as the worker does."""
    ends = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return applier.rehearse(change)
        except (ChangeRefusedError, StalePlanError):
            raise
        except ApplyError:
            assert time.monotonic() < ends, "every rehearsal was cut off"
            time.sleep(0.1)


def settled(applier: KubernetesApplier, change: Change, done: int) -> ReadBack:
    """Look until the effect is there, or fails to come."""
    ends = time.monotonic() + _PATIENCE_SECONDS
    while (found := applier.read_back(change, done=done)).seen is VerificationResult.NOT_YET:
        assert time.monotonic() < ends, found
        time.sleep(0.1)
    return found


def spec_of(bed: KubernetesBed, namespace: str, kind: str = "Deployment") -> Any:
    """The spec of the workload of a test, whole."""
    return bed.get(kind, "serve", namespace=namespace)["spec"]


@contextmanager
def cutting_proxy(bed: KubernetesBed, behave: Callable[[str, str], str]) -> Iterator[str]:
    """A proxy before the API. `behave` tells of (method, path): pass, drop-answer or drop-request.

    An answer is dropped after the API has done what was asked.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._through("GET")

        def do_PATCH(self) -> None:
            self._through("PATCH")

        def do_POST(self) -> None:
            self._through("POST")

        def _through(self, method: str) -> None:
            fate = behave(method, self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.close_connection = True
            if fate == "drop-request":
                return
            kept = ("Authorization", "Content-Type", "Accept")
            with requests.Session() as session:
                session.trust_env = False
                answer = session.request(
                    method,
                    f"{bed.url}{self.path}",
                    data=body or None,
                    headers={name: self.headers[name] for name in kept if name in self.headers},
                    verify=str(bed.certificate),
                    timeout=120,
                )
            if fate == "drop-answer":
                return
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def bind_cordon(bed: KubernetesBed) -> None:
    """Bind the role that may cordon nodes to the applying account."""
    rbac = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": "trimtab-applier", "namespace": "default"}
    bed.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "trimtab-applier-cordon"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "trimtab-applier-cordon"},
            "subjects": [account],
        }
    )


def shrink(applier: KubernetesApplier) -> Change:
    """The approved change: two pods become one."""
    return planned(applier, proposal("faults/deployment/serve", gpus(2), gpus(1)))
