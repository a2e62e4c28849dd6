"""Records what a real Kubernetes answers to patches that it does not take.

    PYTHONPATH=.:tests python tests/recorded/record_kubernetes_apply.py

Writes kubernetes-apply/refusals.json: name to (status, body) as the server sent them.
"""

import json
from pathlib import Path
from typing import Any

from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_apply import deployment, pod_spec

HERE = Path(__file__).parent / "kubernetes-apply"
_PATCH = {"Content-Type": "application/json-patch+json"}


def refusals(bed: KubernetesBed) -> dict[str, tuple[int, Any]]:
    """Ask for what the server has to refuse."""
    bed.apply(deployment("default", replicas=2, pod=pod_spec(2)))
    path = bed.path("Deployment", "default", "serve")
    limits = "/spec/template/spec/containers/1/resources/limits/nvidia.com~1gpu"
    found = {}
    for name, user, operations in (
        ("stale", "admin", [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]),
        ("untrue", "admin", [{"op": "test", "path": "/spec/replicas", "value": 7}]),
        ("unequal", "admin", [{"op": "replace", "path": limits, "value": "1"}]),
        ("fraction", "admin", [{"op": "replace", "path": limits, "value": "0.5"}]),
        ("forbidden", "reader", []),
    ):
        answer = bed.answer("PATCH", path, user=user, json=operations, headers=_PATCH)
        found[name] = (answer.status_code, answer.json())
    gone = bed.answer("PATCH", f"{path}-gone", json=[], headers=_PATCH)
    found["gone"] = (gone.status_code, gone.json())
    merge = {"Content-Type": "application/yaml"}
    other = bed.answer("PATCH", path, data="{}", headers=merge)
    found["media"] = (other.status_code, other.json())
    nobody = bed.answer("PATCH", path, json=[], headers=_PATCH | {"Authorization": "Bearer no"})
    found["unauthorized"] = (nobody.status_code, nobody.json())
    return found


def record() -> None:
    """Record."""
    HERE.mkdir(exist_ok=True)
    with running_kubernetes() as bed:
        text = json.dumps(refusals(bed), indent=1, sort_keys=True)
    (HERE / "refusals.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    record()
