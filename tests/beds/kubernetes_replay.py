"""Recorded lists of a Kubernetes, given again by a server on loopback."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from beds.slurm_replay import answering

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.kinds import KINDS
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import KubernetesSettings

RECORDED = Path(__file__).parents[1] / "recorded" / "kubernetes"
A_TOKEN = "a-token"  # noqa: S105 # of a server that asks for none


def kubeconfig(path: Path, server: str, token: str = A_TOKEN) -> Path:
    """Write a kubeconfig of one context that signs in at `server` with a token."""
    document = {
        "current-context": "only",
        "clusters": [{"name": "only", "cluster": {"server": server}}],
        "users": [{"name": "only", "user": {"token": token}}],
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def recorded_lists(folder: Path) -> Callable[[str], tuple[int, bytes]]:
    """Return what the API answered to a path: one file per kind, 404 where none was recorded."""
    bodies = {}
    for path in sorted(folder.glob("*.json")):
        body = path.read_bytes()
        version = json.loads(body)["apiVersion"]
        for asked in KINDS[path.stem]:
            if asked.rpartition("/")[0].partition("/")[2] == version:
                bodies[f"/{asked}"] = body
    missing = b'{"kind": "Status", "status": "Failure", "code": 404}'

    def answer(path: str) -> tuple[int, bytes]:
        found = bodies.get(path.partition("?")[0])
        return (404, missing) if found is None else (200, found)

    return answer


class RecordedClient(KubernetesClient):
    """A client whose name stays, though its server listens at another port each time."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        return "recorded"


@contextmanager
def recorded_collector(folder: Path, free: Path) -> Iterator[KubernetesCollector]:
    """A collector of a server that answers the lists in `folder`; `free` takes its kubeconfig."""
    free.mkdir(parents=True, exist_ok=True)
    with answering(recorded_lists(folder)) as url:
        path = kubeconfig(free / "kubeconfig", url)
        settings = KubernetesSettings(enabled=True, kubeconfig=str(path))
        yield KubernetesCollector(RecordedClient(settings), load_gpu_catalogue())
