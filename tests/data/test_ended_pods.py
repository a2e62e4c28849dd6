"""Pods that their scheduler does not know, and the workload that they are of."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected, make_job, make_samples

from data.facts.columns import ALLOCATIONS, SERVING, check_frame
from data.facts.jobs import OwnNames
from data.store import Store, open_store
from data.store.handles.tenant_reader import OwnedReader

SINCE = NOW - timedelta(hours=2)
HOUR = timedelta(hours=1)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on both engines."""
    with open_store(store_url) as opened:
        yield opened


def read(label: str) -> pd.DataFrame:
    """A replica that was read for two hours."""
    starts = pd.to_datetime(SINCE) + pd.to_timedelta(5 * np.arange(24), unit="min")
    return check_frame(
        pd.DataFrame(
            {"slot_start": starts.as_unit("us"), "label_id": label, "engine": "vllm",
             "model": "m", "address": label, "running_requests": 1.0, "generation_tokens": 60.0}
        ),
        SERVING,
    )  # fmt: skip


def told(label: str, job_id: str, seen_at: datetime = NOW) -> dict[str, object]:
    """What Kubernetes says of a pod."""
    return {"job_id": job_id, "label_id": label, "started_at": SINCE, "seen_at": seen_at,
            "source": "k"}  # fmt: skip


def keep(
    store: Store, labels: list[str], pods: list[dict[str, object]], batch_id: str = "served"
) -> None:
    """Keep what the labels served, and what Kubernetes tells."""
    frame = pd.DataFrame(pods)
    for name in ("started_at", "seen_at"):
        frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
    frame["ended_at"] = pd.Series(pd.NaT, index=frame.index, dtype="datetime64[us, UTC]")
    serving = pd.concat([read(label) for label in labels], ignore_index=True)
    allocations = check_frame(frame, ALLOCATIONS)
    store.keep(make_collected(serving=serving, allocations=allocations, batch_id=batch_id))


def replicas(store: Store) -> dict[str, int]:
    """The replicas of each service, as its history has them and as its own question does."""
    found = {}
    for history in store.reader.services(start=SINCE, end=NOW, within=HOUR):
        found[history.job_id] = int(history.columns["replicas"].max())
        alone = store.reader.service(history.job_id, "", start=SINCE, end=NOW)
        assert alone["replicas"].max() == found[history.job_id]
    return found


@pytest.mark.parametrize("cluster", ["", "@eu-1"])
@pytest.mark.parametrize(
    ("living", "ended", "kind"),
    [
        ("chat-7d9f8c6b5-bbbbb", "chat-7d9f8c6b5-ccccc", "deployment"),
        ("chat-7d9f8c6b5-bbbbb", "chat-6c8d7f9b44-22222", "deployment"),
        ("chat-0", "chat-17", "statefulset"),
        ("chat-bbbbb", "chat-ccccc", "daemonset"),
        ("chat-bbbbb", "chat-ccccc", "job"),
        ("chat-predictor-7d9f8c6b5-bbbbb", "chat-predictor-5f6d8c9b7-ccccc", "inferenceservice"),
        ("chat-0-1", "chat-0-3", "leaderworkerset"),
    ],
)
def test_a_pod_that_ended_is_of_the_living_workload_of_its_name(
    store: Store, living: str, ended: str, kind: str, cluster: str
) -> None:
    """What Kubernetes no longer knows served the same requests."""
    job = f"search/{kind}/chat{cluster}"
    pods = [f"search/{living}{cluster}", f"search/{ended}{cluster}"]
    keep(store, pods, [told(pods[0], job)])
    assert replicas(store) == {job: 2}


@pytest.mark.parametrize(
    "other",
    [
        "search/chat-long-7d9f8c6b5-ccccc",
        "search/chatter-7d9f8c6b5-ccccc",
        "other/chat-7d9f8c6b5-ccccc",
        "search/chat-7d9f8c6b5-ccccc@eu-1",
        "search/chat-7d9f8c6b5-ccccc@eu-2",
        "search/chat-0",
        "search/chat",
    ],
)
def test_pods_of_another_name_namespace_or_cluster_stay_apart(store: Store, other: str) -> None:
    """A prefix joins nothing, and a number is no drawn name."""
    pod = "search/chat-7d9f8c6b5-bbbbb"
    keep(store, [pod, other], [told(pod, "search/deployment/chat")])
    assert replicas(store)["search/deployment/chat"] == 1
    assert len(replicas(store)) == 2


def test_two_clusters_whose_names_differ_in_a_number_stay_apart(store: Store) -> None:
    """`@eu-1` and `@eu-2` are no ordinals of pods."""
    pods = [f"search/chat-{pod}@eu-{number}" for number in (1, 2) for pod in (0, 1)]
    jobs = ["search/statefulset/chat@eu-1", "search/statefulset/chat@eu-2"]
    keep(store, pods, [told(pods[0], jobs[0]), told(pods[2], jobs[1])])
    assert replicas(store) == dict.fromkeys(jobs, 2)


def test_a_name_of_two_living_workloads_is_of_neither(store: Store) -> None:
    """A DaemonSet's pod may be called as a Deployment's; what was deleted before is no rival."""
    pods = ["search/chat-7d9f8c6b5-bbbbb", "search/chat-bbbbb", "search/chat-7d9f8c6b5-ccccc"]
    rivals = [told(pods[0], "search/deployment/chat"), told(pods[1], "search/daemonset/chat")]
    keep(store, pods, rivals)
    assert replicas(store)["search/deployment/chat"] == 1
    later = told(pods[0], "search/deployment/chat", NOW + HOUR)
    keep(store, pods[:1], [later], batch_id="later")
    assert replicas(store) == {"search/deployment/chat": 2, "search/daemonset/chat": 1}


def test_lone_pods_whose_names_end_in_numbers_are_no_service(store: Store) -> None:
    """A pod without an owner is a workload of its own."""
    keep(store, ["search/run-0", "search/run-1"], [told("search/run-0", "search/pod/run-0")])
    assert replicas(store) == {"search/pod/run-0": 1, "search/run": 1}


def test_its_owner_sees_a_service_with_the_pods_that_ended(store: Store) -> None:
    """And of a service of others nothing."""
    chat, other = "search/deployment/chat", "search/deployment/other"
    pods = [f"search/{name}-7d9f8c6b5-{pod}bbbb" for name in ("chat", "other") for pod in "bc"]
    jobs = (
        make_job(job_id=chat, owner="ada", namespace="search"),
        make_job(job_id=other, owner="bob", namespace="search"),
    )
    store.keep(make_collected(jobs=jobs, batch_id="jobs"))
    keep(store, pods, [told(pods[0], chat), told(pods[2], other)])
    seen = OwnedReader(
        store.reader_for_pages(), OwnNames(owners=frozenset({"ada"}), users=frozenset())
    )
    assert seen.service(chat, "", start=SINCE, end=NOW)["replicas"].tolist() == [2] * 24
    assert seen.service(other, "", start=SINCE, end=NOW).empty
    tokens = seen.served_tokens(start=SINCE, end=NOW)
    assert tokens["job_id"].tolist() == [chat, chat]
    assert tokens["generation_tokens"].tolist() == [2 * 12 * 60.0] * 2


def test_the_start_of_a_pod_that_ended_is_one_of_the_workload(store: Store) -> None:
    """Kubernetes was not read when it began; boards beside it were."""
    living, ended = "search/chat-7d9f8c6b5-bbbbb", "search/chat-7d9f8c6b5-ccccc"
    keep(store, [living, ended], [told(living, "search/deployment/chat")])
    for label, since in (("search/other-0", 30), (ended, -1)):
        minutes = 120 + since
        held = make_samples(job_id=label, minutes=minutes, gpu_uuid=f"GPU-{label}",
                            end=NOW - timedelta(minutes=1))  # fmt: skip
        store.keep(make_collected(held, batch_id=label))
    starts = store.reader.replica_starts(start=SINCE - HOUR, end=NOW)
    assert starts[["job_id", "source"]].values.tolist() == [["search/deployment/chat", "boards"]]
