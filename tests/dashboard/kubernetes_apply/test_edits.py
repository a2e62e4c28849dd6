"""From recommendations to fields, without any server: which container, which field, which not."""

import json
from typing import Any

import pytest
from beds.kubernetes_apply import deployment, gpus, pod_spec, proposal, replicated
from factories import make_recommendation
from hypothesis import given
from hypothesis import strategies as st

from dashboard.apply.kubernetes.change.make_steps import change_back, change_for, field_values
from dashboard.apply.kubernetes.change.observe import PATH_FACT, ROOM_FACT, target_of
from dashboard.apply.kubernetes.change.steps import StepWait, command_of
from dashboard.apply.kubernetes.state.free_capacity import room_for
from dashboard.apply.kubernetes.state.json_patch import (
    Edit,
    document_of,
    edits_of,
    leaves,
    operations_of,
    patched,
    pointer,
    value_at,
)
from dashboard.apply.kubernetes.state.object_paths import place_of
from dashboard.apply.kubernetes.state.pod_spec import roles_of
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.actions import Action
from data.records.changes import Change, Target
from data.records.recommendations import Recommendation

A100 = "A100-SXM4-80GB"
WISH = (("gpus_per_pod", "1"),)


def seen(document: dict[str, Any], job_id: str, **facts: str) -> Target:
    """The target that a look would have given of an object."""
    place = place_of(job_id)
    about = document.setdefault("metadata", {})
    about |= {"uid": "u-1", "resourceVersion": "7"}
    return target_of(place, place.paths()[0], document, facts, ())


def change_of(document: dict[str, Any], recommendation: Recommendation, **facts: str) -> Change:
    """The change of an object."""
    return change_for(recommendation, seen(document, recommendation.job_id, **facts))


def applied(document: dict[str, Any], change: Change) -> dict[str, Any]:
    """The object after all steps."""
    for step in change.steps:
        document = patched(document, command_of(step).operations)
    return document


def serve(pod: Any, **spec: Any) -> dict[str, Any]:
    """A Deployment `ml/serve` of one pod unless told."""
    return deployment("ml", **({"replicas": 1, "pod": pod} | spec))


SERVE = "ml/deployment/serve"


def test_the_container_that_holds_the_gpus_is_changed_not_the_first() -> None:
    """By index, with a test that the index still has that name; limits and requests are equal."""
    change = change_of(serve(pod_spec(4)), proposal(SERVE, gpus(4), gpus(2)))
    (step,) = change.steps
    container = "/spec/template/spec/containers/1"
    limits = f"{container}/resources/limits/nvidia.com~1gpu"
    requests = f"{container}/resources/requests/nvidia.com~1gpu"
    assert command_of(step).operations == [
        {"op": "test", "path": f"{container}/name", "value": "main"},
        {"op": "test", "path": limits, "value": "4"},
        {"op": "test", "path": requests, "value": "4"},
        {"op": "replace", "path": limits, "value": "2"},
        {"op": "replace", "path": requests, "value": "2"},
    ]
    assert (step.field, step.before, step.after) == (
        "nvidia.com/gpu of container main", "4", "2",
    )  # fmt: skip
    assert step.text.startswith("kubectl -n ml patch deployment/serve --type json -p '[")


def test_requests_that_are_not_written_stay_so() -> None:
    """A request left out follows the limit."""
    change = change_of(serve(pod_spec(4, requests=False)), proposal(SERVE, gpus(4), gpus(2)))
    assert [at.split("/")[-2] for at in field_values(change)] == ["limits"]


def init(gpu: int, **more: Any) -> dict[str, Any]:
    """An init container with GPUs."""
    return {"name": "warm", "resources": {"limits": {"nvidia.com/gpu": str(gpu)}}, **more}


def test_an_init_container_never_asks_for_more_than_the_pod_gets() -> None:
    """A pod asks for the most that any init container does; one that asks for less stays."""
    for first, after in ((4, "2"), (1, "1")):
        document = serve(pod_spec(4, initContainers=[init(first)]))
        found = applied(document, change_of(document, proposal(SERVE, gpus(4), gpus(2))))
        pod = found["spec"]["template"]["spec"]
        assert pod["initContainers"][0]["resources"]["limits"]["nvidia.com/gpu"] == after
        assert roles_of("Deployment", found)[0].gpus == 2


def test_a_sidecar_that_holds_gpus_too_is_a_persons_work() -> None:
    """Which of the two is to have fewer, nobody has said."""
    document = serve(pod_spec(3, initContainers=[init(1, restartPolicy="Always")]))
    with pytest.raises(ChangeRefusedError, match="2 containers a pod"):
        change_of(document, proposal(SERVE, gpus(4), gpus(2)))


def test_gpus_that_no_number_of_pods_gives_are_refused() -> None:
    """Three GPUs of two pods with two each."""
    document = serve(pod_spec(2), replicas=2)
    with pytest.raises(ChangeRefusedError, match="no change of the number of pods alone"):
        change_of(document, proposal(SERVE, gpus(4), gpus(3)))


def test_a_model_is_chosen_by_the_label_that_nodes_carry() -> None:
    """Added to the selector that is there, which stays."""
    document = serve(pod_spec(2, nodeSelector={"pool": "gpu"}))
    recommendation = proposal(SERVE, gpus(2), gpus(2, model=A100), action=Action.SMALLER_GPU)
    with pytest.raises(ChangeRefusedError, match="no node has a label"):
        change_of(document, recommendation)
    facts = {f"label of {A100}": "NVIDIA-A100-SXM4-80GB"}
    change = change_of(document, recommendation, **facts)
    assert applied(document, change)["spec"]["template"]["spec"]["nodeSelector"] == {
        "pool": "gpu",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    }


def test_slices_under_the_name_of_gpus_are_not_swapped() -> None:
    """With the strategy `single` a node label chooses the slice, no resource does."""
    with pytest.raises(ChangeRefusedError, match="strategy single"):
        change_of(
            serve(pod_spec(1)),
            proposal(SERVE, gpus(1, profile="3g.40gb"), gpus(1, profile="1g.10gb")),
        )


@pytest.mark.parametrize(
    ("kind", "spec", "why"),
    [
        ("Deployment", {"paused": True}, "paused"),
        ("StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, "OnDelete"),
        ("StatefulSet", {"updateStrategy": {"rollingUpdate": {"partition": 1}}}, "partition"),
    ],
)
def test_what_would_make_no_pods_anew_is_refused(kind: str, spec: dict[str, Any], why: str) -> None:
    """The value would be stored and nothing would happen; another number of pods still works."""
    document = replicated(kind, "ml", replicas=2, pod=pod_spec(2), **spec)
    job_id = f"ml/{kind.lower()}/serve"
    with pytest.raises(ChangeRefusedError, match=why):
        change_of(document, proposal(job_id, gpus(4), gpus(2), details=WISH))
    assert change_of(document, proposal(job_id, gpus(4), gpus(2))).steps


@pytest.mark.parametrize("strategy", ["Recreate", "no-surge"])
def test_a_deployment_that_takes_pods_away_first_needs_no_room(strategy: str) -> None:
    """Its own strategy already does what full nodes need."""
    spec: dict[str, Any] = {"type": strategy}
    if strategy == "no-surge":
        spec = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    document = serve(pod_spec(2), strategy=spec)
    change = change_of(document, proposal(SERVE, gpus(2), gpus(1)), **{ROOM_FACT: "no"})
    assert len(change.steps) == len(change.undo) == 1


def test_the_steps_back_undo_the_steps() -> None:
    """Stored before anything is sent, they lead to the object as it was, one pod at a time."""
    rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
    document = serve(pod_spec(2), strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    recommendation = proposal(SERVE, gpus(2), gpus(1))
    change = change_of(document, recommendation, **{ROOM_FACT: "no"})
    waits = [command_of(entry).wait for entry in change.steps]
    assert waits == [StepWait.NOTHING, StepWait.ROLLED_OUT]
    found = applied(document, change)
    for step in change.undo:
        found = patched(found, command_of(step).operations)
    assert found == document


def test_a_field_that_someone_else_changed_is_not_restored() -> None:
    """Neither sent by us nor there before: a person decides."""
    document = serve(pod_spec(2), replicas=4)
    change = change_of(document, proposal(SERVE, gpus(8), gpus(4)))
    document["spec"]["replicas"] = 3
    with pytest.raises(StalePlanError, match=r"/spec/replicas of ml/serve is 3"):
        change_back(change, seen(document, SERVE))


def test_a_change_that_never_arrived_has_nothing_to_restore() -> None:
    """Its way back has no step."""
    document = serve(pod_spec(2), replicas=4)
    change = change_of(document, proposal(SERVE, gpus(8), gpus(4)))
    assert change_back(change, seen(document, SERVE)).steps == ()


@pytest.mark.parametrize(
    ("kind", "spec", "after"),
    [
        ("jobset", {"replicatedJobs": []}, {"suspend": True}),
        ("trainjob", {"trainer": {"numNodes": 2}}, {"suspend": True}),
        ("rayjob", {"rayClusterSpec": {}}, {"suspend": True}),
        ("mpijob", {"mpiReplicaSpecs": {}}, {"runPolicy": {"suspend": True}}),
        ("leaderworkerset", {"replicas": 2}, {"replicas": 0}),
        ("job", {"parallelism": 2}, {"parallelism": 0}),
    ],
)
def test_every_kind_that_can_stop_and_stay_is_reclaimed(
    kind: str, spec: dict[str, Any], after: dict[str, Any]
) -> None:
    """By its own field; what has stopped already, and what can only be deleted, is refused."""
    recommendation = proposal(f"ml/{kind}/work", gpus(4), gpus(0))
    change = change_of({"spec": spec}, recommendation, server="1.20")
    found = applied({"spec": spec}, change)
    assert found["spec"] == spec | after
    with pytest.raises(ChangeRefusedError, match="stopped already"):
        change_of(found, recommendation)
    with pytest.raises(ChangeRefusedError, match="cannot be stopped and kept"):
        change_of({"spec": spec}, proposal("ml/daemonset/work", gpus(4), gpus(0)))


@pytest.mark.parametrize(
    ("kind", "field"), [("rayjob", "rayClusterSpec"), ("rayservice", "rayClusterConfig")]
)
def test_a_ray_cluster_inside_another_object_is_changed_there_or_not(kind: str, field: str) -> None:
    """A service takes it, a job that was made does not."""
    group = {"groupName": "g", "replicas": 4, "template": {"spec": pod_spec(2)}}
    spec = {field: {"workerGroupSpecs": [group]}}
    recommendation = proposal(f"ml/{kind}/work", gpus(8), gpus(4))
    if kind == "rayjob":
        with pytest.raises(ChangeRefusedError, match="takes no other number of workers"):
            change_of({"spec": spec}, recommendation)
        return
    (step,) = change_of({"spec": spec}, recommendation).steps
    at = f"/spec/{field}/workerGroupSpecs/0/replicas"
    assert command_of(step).edits == {at: (4, 2)}


def test_groups_of_leader_and_workers_count_whole() -> None:
    """Four pods of two GPUs a group: eight fewer GPUs are one group fewer."""
    inside = {"size": 4, "workerTemplate": {"spec": pod_spec(2)}}
    spec = {"replicas": 3, "leaderWorkerTemplate": inside}
    change = change_of({"spec": spec}, proposal("ml/leaderworkerset/work", gpus(24), gpus(16)))
    assert command_of(change.steps[0]).edits == {"/spec/replicas": (3, 2)}


def test_the_fingerprint_minds_what_counts_and_nothing_else() -> None:
    """Labels, images, status and the resourceVersion move without anyone minding; GPUs do not."""
    one = serve(pod_spec(2))
    target = seen(one, SERVE)
    other = json.loads(json.dumps(one))
    other["metadata"] |= {"resourceVersion": "8", "labels": {"a": "b"}}
    other["status"] = {"replicas": 1}
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "new"
    place = place_of(SERVE)
    again = target_of(place, dict(target.state)[PATH_FACT], other, {}, ())
    assert again.fingerprint == target.fingerprint
    other["spec"]["template"]["spec"]["containers"].reverse()
    moved = target_of(place, dict(target.state)[PATH_FACT], other, {}, ())
    assert moved.fingerprint != target.fingerprint


def node(name: str, free: int, **spec: Any) -> dict[str, Any]:
    """A node with GPUs."""
    return {
        "metadata": {"name": name, "labels": {"pool": name}},
        "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": str(free)}},
    }


def on(name: str, gpu: int, phase: str = "Running") -> dict[str, Any]:
    """A pod on a node."""
    return {"spec": pod_spec(gpu) | {"nodeName": name}, "status": {"phase": phase}}


def required(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A required node affinity of one term."""
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("nodes", "pods", "more", "answer"),
    [
        ([node("a", 4)], [on("a", 2)], {}, "yes"),
        ([node("a", 4)], [on("a", 3)], {}, "no"),
        ([node("a", 4)], [on("a", 3, "Succeeded")], {}, "yes"),
        ([node("a", 4, unschedulable=True)], [], {}, "no"),
        ([node("a", 4)], [], {"nodeSelector": {"pool": "b"}}, "no"),
        ([node("a", 1), node("b", 2)], [], {"nodeSelector": {"pool": "b"}}, "yes"),
        ([node("a", 1), node("b", 1)], [], {}, "no"),
        ([node("a", 4)], [], {"affinity": required("pool", "In", "b")}, "no"),
        ([node("a", 4)], [], {"affinity": required("pool", "NotIn", "b")}, "yes"),
        ([], [], {}, "no"),
    ],
)
def test_room_is_what_one_node_has_free(
    nodes: list[Any], pods: list[Any], more: dict[str, Any], answer: str
) -> None:
    """A pod needs its GPUs on one node, which takes pods and has the wanted labels."""
    assert room_for(pod_spec(2, **more), nodes, pods) == answer


names = st.text(st.sampled_from("ab/~1.-"), min_size=1, max_size=4).filter(
    lambda text: not text.isdecimal()
)
values = st.none() | st.booleans() | st.integers() | st.text('ab"é~/', max_size=4)
documents = st.dictionaries(
    names,
    st.recursive(
        values,
        lambda inside: st.lists(inside, max_size=3) | st.dictionaries(names, inside, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(documents)
def test_an_excerpt_is_put_together_as_it_was(document: dict[str, Any]) -> None:
    """Its leaves say all of it, whatever its names hold, and each is found under its pointer."""
    pairs = list(leaves(document))
    if document:
        assert document_of(pairs) == document
    for at, text in pairs:
        found = value_at(document, at)
        assert text == ("absent" if found is None else json.dumps(found, separators=(",", ":")))


@given(st.dictionaries(names, values, min_size=1, max_size=4), st.data())
def test_a_patch_does_what_its_edits_say_and_its_reverse_undoes_it(
    document: dict[str, Any], data: st.DataObject
) -> None:
    """Fields that are there, that are not and that go."""
    document = {name: value for name, value in document.items() if value is not None}
    edits = []
    for name in {*document, "new"}:
        after = data.draw(values)
        if after is not None or name in document:
            edits.append(Edit(at=pointer(name), before=document.get(name), after=after, what=name))
    after_all = patched(document, operations_of(edits))
    for entry in edits:
        assert value_at(after_all, entry.at) == entry.after
    assert edits_of(operations_of(edits)) == {edit.at: (edit.before, edit.after) for edit in edits}
    back = patched(after_all, operations_of(edit.reversed() for edit in edits))
    assert {k: v for k, v in back.items() if v is not None} == document


def test_a_node_has_to_be_named() -> None:
    """The details of a consolidation name it, in words that Kubernetes allows."""
    assert make_recommendation().details == ()
    with pytest.raises(ChangeRefusedError, match="no namespace/kind/name"):
        place_of("ml/deployment/../secrets/x")
    with pytest.raises(ChangeRefusedError, match="a kind that no change is known for"):
        place_of("ml/deployment.evil.io/x")


@pytest.mark.parametrize("proposed", [gpus(2), gpus(1), gpus(4, model=A100)])
@pytest.mark.parametrize("wish", [(), WISH])
def test_shares_of_boards_are_not_taken_for_boards(
    proposed: Any, wish: tuple[tuple[str, str], ...]
) -> None:
    """Fewer shares, or shares of another model, free no board; to stop all pods stays allowed."""
    text = json.dumps(serve(pod_spec(4))).replace("nvidia.com/gpu", "nvidia.com/gpu.shared")
    with pytest.raises(ChangeRefusedError, match="hold shares of boards"):
        change_of(json.loads(text), proposal(SERVE, gpus(4), proposed, details=wish))
    assert change_of(json.loads(text), proposal(SERVE, gpus(4), gpus(0))).steps
