"""Pods that each have a share of the work or data: another number of them would drop it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from beds.kubernetes_lists import JOBS, PODS, SETS, facts, pod, template, thing, told
from hypothesis import given
from hypothesis import strategies as st

from collectors.kubernetes.own_work import checkpoint_facts, scale_down_refusal, scaling_refusal
from data.records.feasible_changes import configuration_refusal
from data.records.plans import Configuration

COUNTS = st.integers(min_value=1, max_value=40)
ELASTIC = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/elastic-job": "true"}


def indexed(count: int, parallelism: int, **container: Any) -> dict[str, Any]:
    """The spec of an Indexed Job whose pods have two GPUs."""
    pods = template("2")
    pods["spec"]["containers"][0] |= container
    work = {"completions": count, "completionMode": "Indexed"}
    return {"parallelism": parallelism, "template": pods, **work}


@given(completions=COUNTS, parallelism=COUNTS, mode=st.sampled_from(["Indexed", "NonIndexed"]))
def test_equal_numbers_are_no_sign_that_a_job_shares_its_work(
    completions: int, parallelism: int, mode: str
) -> None:
    """Each completion is a share of its own, however many pods run at a time."""
    spec = {"completions": completions, "parallelism": parallelism, "completionMode": mode}
    set_spec = {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": spec}}]}
    for kind, document in (
        ("Job", {"spec": spec}),
        ("CronJob", {"spec": {"jobTemplate": {"spec": spec}}}),
        ("JobSet", {"spec": set_spec}),
    ):
        assert "completions" in scale_down_refusal(kind, document)


@pytest.mark.parametrize(
    ("marks", "container", "is_marked"),
    [
        ({}, {}, False),
        (ELASTIC, {}, True),
        ({"kueue.x-k8s.io/elastic-job": "true"}, {}, False),
        ({"trimtab/elastic": "true"}, {}, True),
        ({"trimtab/elastic": "yes"}, {}, False),
        ({}, {"command": ["torchrun", "--nnodes=1:4", "t.py"]}, True),
        ({}, {"command": ["torchrun", "--nnodes", "1:4", "t.py"]}, True),
        ({}, {"command": ["torchrun", "--nnodes=4", "t.py"]}, False),
        ({}, {"env": [{"name": "PET_NNODES", "value": "2:4"}]}, True),
        ({}, {"args": ["--note=nnodes=1:4"]}, False),
    ],
)
def test_only_its_owners_mark_lets_completions_follow(
    tmp_path: Any, marks: dict[str, str], container: dict[str, Any], is_marked: bool
) -> None:
    """Kueue's annotation with a queue, ours, or a launcher that takes a range of nodes."""
    own = thing("Job", "train", spec=indexed(4, 4, **container), annotations=marks)
    pods = [pod(f"p{number}", "batch/v1/Job/train") for number in range(4)]
    job = told({PODS: pods, JOBS: [own]}, tmp_path).jobs[0]
    assert bool(configuration_refusal(job, two_of(job.gpu_model, 4))) != is_marked
    assert configuration_refusal(job, two_of(job.gpu_model, 0)) == ""


def two_of(model: str, count: int) -> Configuration:
    """So many boards of a model."""
    return Configuration(gpu_model=model, gpu_count=count)


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_mark_lets_no_job_of_more_rounds_save(mode: str) -> None:
    """Of eight completions two at a time each runs to its end, marked elastic or not."""
    spec = {"completions": 8, "parallelism": 2, "completionMode": mode}
    document = {"metadata": {"annotations": {"trimtab/elastic": "true"}}, "spec": spec}
    assert "8 completions" in scale_down_refusal("Job", document)


CLAIMS = {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}
INDEX = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}


@pytest.mark.parametrize(
    ("spec", "container", "reason"),
    [
        ({}, {}, ""),
        (CLAIMS, {}, "a volume of its own (data)"),
        ({}, {"env": [{"name": "SHARD", "valueFrom": INDEX}]}, "its own number"),
        ({}, {"command": ["sh", "-c", "serve --shard ${HOSTNAME##*-}"]}, "its own number"),
        ({}, {"args": ["--rank=$(POD_INDEX)"]}, "its own number"),
        ({}, {"args": ["--head=serve-0.serve:6379"]}, "serve-0"),
        ({}, {"args": ["--head=preserve-0.serve"]}, ""),
        ({}, {"args": ["--model=serve-0x"]}, ""),
        ({}, {"env": [{"name": "NUM_SHARDS", "value": "4"}]}, "NUM_SHARDS=4"),
        ({}, {"args": ["--num-shards", "4"]}, "--num-shards 4"),
        ({}, {"args": ["--num-shards", "16"]}, ""),
    ],
)
@pytest.mark.parametrize("marks", [{}, {"trimtab/elastic": "true"}])
def test_replicas_that_are_shards_are_not_taken_for_copies(
    tmp_path: Any,
    spec: dict[str, Any],
    container: dict[str, Any],
    reason: str,
    marks: dict[str, str],
) -> None:
    """Ordinals that own data or work, and a leader that is named; a launcher's number holds too."""
    pods = template("2")
    pods["spec"]["containers"][0] |= container
    own = thing("StatefulSet", "serve", {"replicas": 4, "template": pods} | spec, annotations=marks)
    running = [pod(f"serve-{number}", "apps/v1/StatefulSet/serve") for number in range(4)]
    job = told({PODS: running, SETS: [own]}, tmp_path).jobs[0]
    why = configuration_refusal(job, two_of(job.gpu_model, 2))
    named = "NUM_SHARDS" in reason or "--num-shards" in reason
    assert bool(why) == (bool(reason) and (named or not marks))
    if reason and not named and not marks:
        assert reason in scaling_refusal("StatefulSet", own)
        assert reason in why
        assert configuration_refusal(job, two_of(job.gpu_model, 10))
        # Other GPUs in each pod leave all its pods.
        assert configuration_refusal(job, two_of(job.gpu_model, 4)) == ""


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_set_whose_volumes_go_with_its_pods_is_not_stopped(tmp_path: Any, policy: str) -> None:
    """`whenScaled: Delete` deletes the data of each pod that a change takes."""
    keep = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": policy}}
    spec = {"replicas": 1, "template": template("2")} | CLAIMS | keep
    running = [pod("serve-0", "apps/v1/StatefulSet/serve")]
    lists = {PODS: running, SETS: [thing("StatefulSet", "serve", spec)]}
    found = told(lists, tmp_path)
    assert facts(found).workload
    assert bool(configuration_refusal(found.jobs[0], two_of(found.jobs[0].gpu_model, 0))) == (
        policy == "Delete"
    )


@pytest.mark.parametrize(
    ("marks", "names"),
    [
        ({}, set()),
        ({"trimtab/checkpoints": "true"}, {"checkpoints"}),
        ({"trimtab/checkpoints": "false"}, set()),
        ({"trimtab/checkpoints": "yes, daily"}, set()),
        ({"trimtab/checkpoint-at": "2026-01-05T11:00:00Z"}, {"checkpoint_at"}),
        ({"trimtab/checkpoint-at": "2026-01-05T13:00:00Z"}, set()),
        ({"trimtab/checkpoint-at": "an hour ago"}, set()),
        ({"checkpoints": "true"}, set()),
    ],
)
def test_a_checkpoint_is_what_its_owner_says_and_none_of_the_future(
    marks: dict[str, str], names: set[str]
) -> None:
    """By annotations of the workload; a word that is not understood says nothing."""
    seen_at = datetime(2026, 1, 5, 12, tzinfo=UTC)
    document = {"metadata": {"name": "train", "annotations": marks}}
    assert {name for name, _value in checkpoint_facts(document, seen_at)} == names
