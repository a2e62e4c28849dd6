"""Manifests and the stand-in of a newer API are held to what newer servers publish."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.kubernetes_fake import FakeApi, fake_api
from beds.published_schemas import pod_templates, schema_refusal

ROOT = Path(__file__).parents[1]
MANIFESTS = sorted(
    path
    for where in ("deploy/*.yaml", "deploy/hpa/horizontal*.yaml", "tests/golden/submission/*.yaml")
    for path in ROOT.glob(where)
)
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "ml"},
    "spec": {
        "suspend": True,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "train:1",
                        "resources": {"limits": {"nvidia.com/gpu": "2"}},
                    }
                ],
            }
        },
    },
}
PATH = "apis/batch/v1/namespaces/ml/jobs/train"
CONTAINER = "/spec/template/spec/containers/0"


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_valid_on_newer_servers(manifest: Path) -> None:
    """Every object that we ask people to create is one that 1.33 to 1.37 know, field by field."""
    documents = [
        document
        for document in yaml.safe_load_all(manifest.read_text(encoding="utf-8"))
        if document is not None
    ]
    assert documents
    assert all(
        document["apiVersion"] in ("v1", "batch/v1", "autoscaling/v2")
        or "rbac" in document["apiVersion"]
        or list(pod_templates(document))
        for document in documents
    )
    assert {schema_refusal(document) for document in documents} == {None}


def test_an_unknown_field_is_refused() -> None:
    """The check can fail."""
    wrong = copy.deepcopy(JOB)
    wrong["spec"]["suspendd"] = True
    assert "suspendd" in (schema_refusal(wrong) or "")


def put_job() -> FakeApi:
    """Return a stand-in, not serving, that holds the job."""
    with fake_api() as server:
        server.put(PATH, copy.deepcopy(JOB))
    return server


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{CONTAINER}/resources/limits/nvidia.com~1gpu", ["1"]),
        (f"{CONTAINER}/resourcez", {}),
        ("/spec/suspend", "yes"),
        ("/spec/parallelism", "two"),
        ("/spec/gpus", 2),
    ],
)
def test_the_stand_in_refuses_what_the_schemas_refuse(path: str, value: object) -> None:
    """A patch whose result newer servers do not know is a 400, and nothing is kept."""
    server = put_job()
    before = copy.deepcopy(server.objects[PATH])
    status, body, _headers = server.patch(PATH, "", [{"op": "add", "path": path, "value": value}])
    assert (status, b"1.33" in body) == (400, True)
    assert server.objects[PATH] == before


def test_the_stand_in_takes_what_the_schemas_take() -> None:
    """A suspended Job without pods may get fewer GPUs."""
    server = put_job()
    path = f"{CONTAINER}/resources/limits/nvidia.com~1gpu"
    status, _body, _headers = server.patch(
        PATH, "", [{"op": "replace", "path": path, "value": "1"}]
    )
    assert status == 200
