"""Submitting over HTTP on a real Slurm: what was shown is what is sent, once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.api_clients import PROXY, clients, problem
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode

from dashboard.submission.job.command_options import COUNT_OPTIONS
from data.settings.all_settings import Settings
from data.settings.sources import SlurmSettings
from data.settings.submission import SubmitSettings
from data.store import Store, open_store

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
JOB = f"""
name = "by-http"
command = ["train.py"]
reads = {json.dumps(COUNT_OPTIONS)}
[model]
name = "tinyllama-1.1b"
[training]
global_batch = 64
sequence_length = 2048
"""


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """One node of four H100."""
    nodes = (
        BedNode(name="h1", gpu_type="h100", gpus=4, features="h100"),
        BedNode(name="c1", features="cpu"),
    )
    with running_slurm(nodes=nodes) as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as opened:
        yield opened


def test_what_was_shown_is_sent_once(bed: SlurmBed, store: Store) -> None:
    """With its digest alone; asked again under its key it is the same job."""
    settings = Settings(
        slurm=SlurmSettings(
            mode="commands", conf_file=str(bed.conf), gpu_models="h100=H100-SXM5-80GB"
        ),
        submit=SubmitSettings(enabled=True, max_gpus=4, allow_slurm_operator=True),
    )
    address = "/api/v1/submissions"
    with clients(store, PROXY, settings=settings) as client:
        ann = client("ann")
        shown = ann.post(f"{address}/preview", json={"job": JOB})
        assert shown.status_code == 200, shown.text
        digest = shown.json()["digest"]
        assert store.reader.submissions() == ()
        again = ann.post(f"{address}/preview", json={"job": JOB}).json()
        assert (again["digest"], again["id"] == shown.json()["id"]) == (digest, False)
        other = JOB.replace("2048", "1024")
        problem(ann.post(address, json={"job": other, "digest": digest}), 409)
        problem(client("vera").post(address, json={"job": JOB, "digest": digest}), 403)
        assert store.reader.submissions() == ()
        key = {"Idempotency-Key": "once"}
        wish = {"job": JOB, "digest": digest}
        sent = ann.post(address, json=wish, headers=key)
        assert sent.status_code == 201, sent.text
        assert ann.post(address, json=wish, headers=key).json() == sent.json()
        problem(ann.post(address, json=wish), 409)
        assert client("vera").get(address).json()["items"] == [sent.json()]
    (kept,) = store.reader.submissions()
    assert (kept.submitted_by, kept.latest.job_id) == ("ann", sent.json()["job"])
    assert kept.latest.job_id.rpartition("/")[2].rpartition(":")[2] in bed.states()
