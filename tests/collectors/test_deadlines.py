"""Deadlines that schedulers keep are facts of a job: when it ends, whatever it still does."""

import copy
import json
from typing import Any

import pytest
from beds.slurm_replay import RECORDED, RELEASES

from collectors.kubernetes.workload_state import deadline_of
from collectors.slurm.records import read_queue_job

STARTED = {"startTime": "2026-01-05T12:00:00Z"}
AT = "2026-01-05T13:30:00+00:00"


@pytest.mark.parametrize(
    ("chain", "at"),
    [
        ([{"spec": {"activeDeadlineSeconds": 5400}, "status": STARTED}], AT),
        ([{"spec": {"runPolicy": {"activeDeadlineSeconds": 5400}}, "status": STARTED}], AT),
        ([{"spec": {}}, {"spec": {"activeDeadlineSeconds": 5400}, "status": STARTED}], AT),
        ([{"spec": {"activeDeadlineSeconds": 5400, "suspend": True}, "status": {}}], ""),
        ([{"spec": {"activeDeadlineSeconds": 0}, "status": STARTED}], ""),
        ([{"spec": {"activeDeadlineSeconds": True}, "status": STARTED}], ""),
        ([{"spec": {"activeDeadlineSeconds": 10**18}, "status": STARTED}], ""),
        ([{"spec": {}, "status": STARTED}], ""),
        ([], ""),
    ],
)
def test_a_kubernetes_deadline_counts_from_the_start(chain: list[Any], at: str) -> None:
    """Of a suspended Job it does not run; nonsense is none."""
    assert deadline_of(chain) == at


@pytest.mark.parametrize("release", RELEASES)
def test_a_slurm_deadline_is_a_fact_of_the_job(release: str) -> None:
    """Slurm writes 0, or a number that is not set, where there is none."""
    document = json.loads((RECORDED / release / "squeue.json").read_text(encoding="utf-8"))
    record = copy.deepcopy(document["jobs"][0])
    assert "deadline_at" not in dict(read_queue_job(record).extra)
    seconds = 1_767_619_800
    numbers = isinstance(record["deadline"], int)
    record["deadline"] = seconds if numbers else {"set": True, "infinite": False, "number": seconds}
    assert dict(read_queue_job(record).extra)["deadline_at"] == AT
