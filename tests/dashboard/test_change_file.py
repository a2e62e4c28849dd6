"""Change files: exact text, hostile names refused, written whole."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from factories import H100, NOW, make_job, make_recommendation

from dashboard.apply.worker.change_file import change_for, write_change
from data.base.errors import ApplyError, ChangeRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Gpu
from data.facts.gpu_resources import PRODUCT_LABEL
from data.facts.jobs import Job, Platform, SchedulerFacts
from data.records.actions import Action
from data.records.plans import Configuration
from data.records.recommendations import RecommendationRow


def gpu(index: int, node: str = "node-1") -> Gpu:
    """A board held by the job."""
    return Gpu(
        gpu_uuid=f"GPU-0000-{index:04d}",
        mig_instance="",
        mig_profile="",
        node=node,
        gpu_model=H100,
        memory_total_mib=81559.0,
        job_id="search/ranker-0",
        last_seen_at=NOW,
    )


def test_kubernetes_patch_tests_the_present_count_before_it_changes_it() -> None:
    """The patch is refused by the server when the workload changed meanwhile."""
    change = change_for(make_recommendation(), ())
    pointer = "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu"
    assert yaml.safe_load(change.text) == [
        {"op": "test", "path": pointer, "value": "4"},
        {"op": "replace", "path": pointer, "value": "2"},
    ]


def test_mig_slice_swaps_the_resource_name() -> None:
    """A slice is another extended resource: the whole-GPU limit goes, the slice's comes."""
    proposed = Configuration(gpu_model=H100, gpu_count=1, mig_profile="1g.10gb")
    now = Configuration(gpu_model=H100, gpu_count=1)
    change = change_for(
        make_recommendation(action=Action.MIG_SLICE, now=now, proposed=proposed), ()
    )
    operations = yaml.safe_load(change.text)
    assert [operation["op"] for operation in operations] == ["test", "remove", "add"]
    assert operations[2]["path"].endswith("nvidia.com~1mig-1g.10gb")


def test_reclaim_stops_an_owner_with_one_pod_only() -> None:
    """Other replicas may be busy: the patch fails unless this pod is the only one."""
    nothing = Configuration(gpu_model=H100, gpu_count=0)
    change = change_for(make_recommendation(action=Action.RECLAIM, proposed=nothing), ())
    assert yaml.safe_load(change.text)[0] == {"op": "test", "path": "/spec/replicas", "value": 1}


def test_a_node_of_kubernetes_is_cordoned_by_name() -> None:
    """The text names the node and the way back; a name that a shell would read is refused."""
    empty = {"job_id": "", "action": Action.CONSOLIDATE, "platform": Platform.KUBERNETES}
    text = change_for(make_recommendation(**empty, details=(("node", "gpu-7"),)), ()).text
    assert "\n# The same as: kubectl cordon gpu-7\nkubectl patch node/gpu-7 --type json" in text
    assert "kubectl uncordon gpu-7" in text
    with pytest.raises(ChangeRefusedError, match="no name of a node"):
        change_for(make_recommendation(**empty, details=(("node", "x\nreboot"),)), ())


def test_a_known_workload_is_named_in_the_command() -> None:
    """Nobody has to look for the owner when the job id is the workload."""
    text = change_for(make_recommendation(job_id="search/deployment/ranker"), ()).text
    assert "kubectl -n search patch deployment/ranker --type json" in text
    assert "OWNER" not in text
    text = change_for(make_recommendation(job_id="search/ranker-0"), ()).text
    assert "the patch is refused where it has more replicas" in text


def with_pods(job_id: str, pods: int, each: int) -> Job:
    """A workload as its scheduler told it."""
    extra = (("pods", str(pods)), ("gpus_per_pod", str(each)))
    return make_job(job_id, scheduler=SchedulerFacts(extra=extra))


@pytest.mark.parametrize(("kind", "field"), [("deployment", "replicas"), ("job", "parallelism")])
def test_a_workload_of_several_pods_gets_fewer_pods(kind: str, field: str) -> None:
    """Four GPUs in two pods become two in one; the server checks the number it had."""
    job_id = f"search/{kind}/ranker"
    change = change_for(make_recommendation(job_id=job_id), (), with_pods(job_id, 2, 2))
    assert yaml.safe_load(change.text) == [
        {"op": "test", "path": f"/spec/{field}", "value": 2},
        {"op": "replace", "path": f"/spec/{field}", "value": 1},
    ]


@pytest.mark.parametrize("job_id", ["search/deployment/ranker", "search/pytorchjob/train"])
def test_what_no_number_of_pods_says_is_refused(job_id: str) -> None:
    """Two GPUs of pods with four each, or a kind whose pods have roles: a person's work."""
    each = 4 if "deployment" in job_id else 2
    with pytest.raises(ChangeRefusedError, match="pods"):
        change_for(make_recommendation(job_id=job_id), (), with_pods(job_id, 2, each))


@pytest.mark.parametrize(
    "job_id", ["search/$(reboot)", "a/b\n- op: remove", "UPPER/case", "noslash", "../x", "a/b/c/d"]
)
def test_hostile_pod_names_are_refused(job_id: str) -> None:
    """What Kubernetes would not take as a name never reaches a file."""
    with pytest.raises(ChangeRefusedError):
        change_for(make_recommendation(job_id=job_id), ())


def test_slurm_commands_requeue_change_and_release_in_this_order() -> None:
    """A running Slurm job cannot change its GPU count, so it is requeued on hold first."""
    change = change_for(
        make_recommendation(job_id="slurm:4711", platform=Platform.SLURM), (gpu(0), gpu(1))
    )
    lines = [line for line in change.text.splitlines() if line.startswith("scontrol")]
    assert "scontrol requeuehold 4711" in lines
    assert lines.index("scontrol requeuehold 4711") < lines.index(
        "scontrol update JobId=4711 Gres=gpu:h100:2"
    )
    assert lines[-1] == "scontrol release 4711"


@pytest.mark.parametrize("job_id", ["slurm:1;rm -rf /", "slurm:", "slurm:abc", "slurm:1 2"])
def test_hostile_slurm_ids_are_refused(job_id: str) -> None:
    """Only digits, an array index and a het offset make a Slurm job id."""
    with pytest.raises(ChangeRefusedError):
        change_for(make_recommendation(job_id=job_id, platform=Platform.SLURM), ())


def test_power_cap_names_every_gpu_of_the_job() -> None:
    """A cap is set per board, on the node that has it."""
    proposed = Configuration(gpu_model=H100, gpu_count=4, power_cap_watts=490.0)
    change = change_for(
        make_recommendation(action=Action.POWER_CAP, proposed=proposed), (gpu(1), gpu(0, "node-0"))
    )
    assert change.text.splitlines()[-4:] == [
        "# node node-0",
        "nvidia-smi -i GPU-0000-0000 -pl 490",
        "# node node-1",
        "nvidia-smi -i GPU-0000-0001 -pl 490",
    ]


def test_power_cap_refuses_a_uuid_that_a_shell_would_read() -> None:
    """A UUID from a label is hostile input."""
    proposed = Configuration(gpu_model=H100, gpu_count=1, power_cap_watts=490.0)
    hostile = replace(gpu(0), gpu_uuid="GPU-0; reboot")
    with pytest.raises(ChangeRefusedError):
        change_for(make_recommendation(action=Action.POWER_CAP, proposed=proposed), (hostile,))


def test_unknown_platform_is_refused_with_the_next_step() -> None:
    """Without knowing the platform no change is guessed."""
    with pytest.raises(ChangeRefusedError, match="platform"):
        change_for(make_recommendation(platform=Platform.UNKNOWN), ())


def test_change_file_is_written_whole(tmp_path: Path) -> None:
    """The file holds exactly the previewed text and no temporary file stays behind."""
    change = change_for(make_recommendation(), ())
    path = write_change(change, tmp_path / "changes")
    assert path.read_text(encoding="utf-8") == change.text
    assert [entry.name for entry in path.parent.iterdir()] == [change.file_name]


def test_unwritable_folder_is_an_error_with_a_hint(tmp_path: Path) -> None:
    """A file in the place of the folder is reported, not overwritten."""
    (tmp_path / "blocked").write_text("mine")
    with pytest.raises(ApplyError, match=r"apply\.directory"):
        write_change(change_for(make_recommendation(), ()), tmp_path / "blocked")


def test_digest_changes_with_any_field() -> None:
    """An approval of one digest says nothing about any other proposal."""
    one = make_recommendation()
    other = make_recommendation(proposed=Configuration(gpu_model=H100, gpu_count=1))
    assert one.digest != other.digest
    assert one.digest == make_recommendation().digest
    assert json.dumps(asdict(one.as_row(RecommendationRow)), default=str)


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("L40S-48GB", "NVIDIA-L40S"),
        ("A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("H100-SXM5-80GB", "NVIDIA-H100-80GB-HBM3"),
        ("T4-16GB", "Tesla-T4"),
    ],
)
def test_another_model_is_asked_for_by_the_label_of_its_nodes(model: str, label: str) -> None:
    """Not by the catalogue's name, which no node has: such pods would wait for ever."""
    other = Configuration(gpu_model="L4-24GB", gpu_count=1)
    change = change_for(
        make_recommendation(
            job_id="search/deployment/ranker",
            action=Action.SMALLER_GPU,
            now=other,
            proposed=replace(other, gpu_model=model),
        ),
        (),
    )
    values = json.dumps(yaml.safe_load(change.text))
    assert f'"{PRODUCT_LABEL}": "{label}"' in values or f'"value": "{label}"' in values
    assert load_gpu_catalogue().recognise(label) == model
