"""What is recommended for a drawn Kubernetes cluster is what its applier takes.

One set of objects is read by the collector, planned, and shown to the applier by the stand-in of
an API server. The applier's look, change and rehearsal are the oracle.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from beds.kubernetes_apply import settings_of
from beds.kubernetes_fake import FakeApi, fake_api
from beds.kubernetes_replay import kubeconfig
from drawn_kubernetes import (
    cluster_of_three_models,
    draw,
    recommended,
    refusal_of,
    serve,
    workload,
)

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.records.recommendations import Recommendation


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    """A stand-in of an API server, empty."""
    with fake_api() as server:
        yield server


def tried(
    fake: FakeApi, folder: Path, seeds: Sequence[int], slot_minutes: int
) -> tuple[Counter[str], list[tuple[int, Recommendation, str]]]:
    """The actions that the applier covers over all seeds, and those that it refuses."""
    applier = KubernetesApplier(settings_of(kubeconfig(folder / "kubeconfig", fake.url)))
    asked: Counter[str] = Counter()
    refused = []
    for seed in seeds:
        drawn = draw(seed)
        found = recommended(drawn, seed, slot_minutes)
        fake.objects.clear()
        serve(fake, drawn)
        for entry in found:
            if applier.covers(entry):
                asked[entry.action] += 1
                why = refusal_of(applier, entry)
                refused += [(seed, entry, why)] if why else []
    return asked, refused


@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
def test_a_fleet_of_three_models_gets_only_what_can_be_made(
    fake: FakeApi, tmp_path: Path, slot_minutes: int
) -> None:
    """A service of four pods, two pods of two, a gang that no one resizes, an idle pod."""
    drawn = cluster_of_three_models()
    workload(drawn, ("Deployment", "detector"), (4, 1), 0)
    workload(drawn, ("Deployment", "pairs"), (2, 2), 3)
    workload(drawn, ("JobSet", "gang"), (4, 1), 1)
    workload(drawn, ("StatefulSet", "embed"), (1, 4), 4)
    levels = {"detector": 0.2, "pairs": 0.3, "gang": 0.2, "embed": 0.1}
    found = recommended(drawn, 0, slot_minutes, levels=levels)
    offered = {entry.job_id.rpartition("/")[2]: entry for entry in found if entry.job_id}
    assert set(offered) == {"detector", "pairs", "embed"}
    for entry in offered.values():
        moved = entry.proposed.gpu_model != entry.now.gpu_model
        assert not moved or entry.proposed.gpu_count == entry.now.gpu_count
        assert not entry.proposed.mig_profile
    serve(fake, drawn)
    applier = KubernetesApplier(settings_of(kubeconfig(tmp_path / "kubeconfig", fake.url)))
    assert [refusal_of(applier, entry) for entry in found if applier.covers(entry)] == [""] * len(
        found
    )


@pytest.mark.parametrize(
    ("slot_minutes", "seeds"),
    [
        *((60, 2), (30, 1), (15, 1), (5, 1)),
        *(pytest.param(*more, marks=pytest.mark.slow_end) for more in ((60, 16), (30, 4), (15, 4))),
    ],
)
def test_the_applier_takes_what_is_offered(
    fake: FakeApi, tmp_path: Path, slot_minutes: int, seeds: int
) -> None:
    """At least 19 of 20; what is refused is named with its seed."""
    first = 100 * slot_minutes
    asked, refused = tried(fake, tmp_path, range(first, first + seeds), slot_minutes)
    total = asked.total()
    shown = "\n".join(
        f"seed {seed}: {entry.target} {entry.now.describe()} -> {entry.summary}: {why}"
        for seed, entry, why in refused
    )
    assert total >= 2 * seeds
    assert len(refused) <= 0.05 * total, shown


def test_a_workload_whose_pods_are_not_all_there_is_left_alone() -> None:
    """Its controller could not make them: what the plan saw is not what the object asks for."""
    drawn = cluster_of_three_models()
    workload(drawn, ("StatefulSet", "short"), (3, 1), 0)
    workload(drawn, ("StatefulSet", "whole"), (3, 1), 0, at=3)
    (short,) = (
        document
        for document in drawn.objects["StatefulSet"]
        if document["metadata"]["name"] == "short"
    )
    short["spec"]["replicas"] = 5
    found = recommended(drawn, 0, 60, levels={"short": 0.1, "whole": 0.1})
    assert {entry.job_id.rpartition("/")[2] for entry in found if entry.job_id} == {"whole"}
