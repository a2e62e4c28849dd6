"""The size of a job before it is admitted: what is read of it, and what may be changed."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.api_clients import LOCAL, clients, problem
from beds.published_schemas import schema_refusal
from factories import make_collected, make_job
from starlette.testclient import TestClient

from dashboard.apply.slurm.client.time_limits import seconds_of_limit
from dashboard.submission.launchers.scheduled_job import read_script
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError
from data.facts.fleet import Node
from data.facts.jobs import JobState, Platform, SchedulerFacts
from data.settings.all_settings import Settings
from data.settings.sources import SlurmSettings
from data.store import Store, open_store

H100, A100 = "H100-SXM5-80GB", "A100-SXM4-40GB"
LABELS = {H100: "NVIDIA-H100-80GB-HBM3", A100: "NVIDIA-A100-SXM4-40GB"}
PRODUCT = "nvidia.com/gpu.product"
COMMAND = (
    "torchrun --nproc-per-node 4 train.py --model_name_or_path Qwen/Qwen2.5-0.5B --bf16 "
    "--per_device_train_batch_size 1 --max_seq_length 2048"
)
SCRIPT = f"""#!/bin/bash
#SBATCH --gres=gpu:a100:4 -N 1
#SBATCH --time=02:00:00
module load cuda
PER_NODE=4
srun {COMMAND.replace("node 4", "node $PER_NODE")}
"""
RECIPE = """
[model]
name = "tinyllama-1.1b"
[training]
global_batch = 64
sequence_length = 2048
[data]
tokens = 1e9
"""
READS = "GPUS NODES GPUS_PER_NODE MICRO_BATCH GRADIENT_ACCUMULATION SHARDING RECOMPUTE"
TOLD = " ".join(f"--x $TRIMTAB_{name}" for name in READS.split())
DESCRIBED = "#!/bin/bash\n#SBATCH --time=00:10:00\n#TRIMTAB size = 'apply'\n" + "\n".join(
    [*(f"#TRIMTAB {line}" for line in RECIPE.split("\n")), f"srun torchrun train.py {TOLD}"]
)
SETTINGS = Settings(slurm=SlurmSettings(gpu_models=f"h100={H100},a100={A100}"))
MAY_CHANGE = ("/spec/template/spec/nodeSelector", "/spec/activeDeadlineSeconds")


def nodes(**features: str) -> Iterator[Node]:
    """Two nodes of eight H100 in the partition gpu, two of four A100 in gpu and old."""
    for name, model, gpus, partitions in (
        ("h1", H100, 8, ("gpu",)), ("h2", H100, 8, ("gpu",)),
        ("a1", A100, 4, ("gpu", "old")), ("a2", A100, 4, ("gpu", "old")),
    ):  # fmt: skip
        label = features.get(name, LABELS[model])
        yield Node(
            name=name, gpu_model=model, gpu_count=gpus, cpus=64, memory_mib=512_000.0,
            partitions=partitions, features=(f"{PRODUCT}={label}",), seen_at=utc_now(),
            source="slurm test",
        )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of these nodes, without a job."""
    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as opened:
        opened.keep(make_collected(jobs=(), nodes=tuple(nodes())))
        yield opened


Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(store: Store) -> Iterator[Ask]:
    """Asks for the size of a script or an object."""
    with clients(store, LOCAL, settings=SETTINGS) as client:
        page = client(peer="127.0.0.1")
        yield lambda job, status=200: asked(page, job, status)


def asked(page: TestClient, job: Any, status: int) -> dict[str, Any]:
    """The answer to a job, or the problem of this status."""
    kind = "text/plain" if isinstance(job, str) else "application/json"
    body = job if isinstance(job, str) else json.dumps(job)
    answer = page.post("/api/v1/size", content=body, headers={"Content-Type": kind})
    if status != 200:
        return problem(answer, status)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def job(*, command: str = COMMAND, gpus: int = 4, **spec: Any) -> dict[str, Any]:
    """A suspended Job whose owner consents."""
    container = {
        "name": "train", "image": "train:1", "command": command.split(),
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }  # fmt: skip
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "tune", "namespace": "ml", "resourceVersion": "7",
            "annotations": {"trimtab/size": "apply"},
        },
        "spec": {"suspend": True, "template": {"spec": pod}} | spec,
    }  # fmt: skip


def patched(document: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """The object after a JSON patch of adds and replaces, whose tests must hold."""
    result = deepcopy(document)
    for operation in operations:
        names = operation["path"].replace("~1", "\0").strip("/").split("/")
        *above, last = (name.replace("\0", "/") for name in names)
        inside: Any = result
        for name in above:
            inside = inside[int(name)] if isinstance(inside, list) else inside[name]
        if operation["op"] == "test":
            assert inside[last] == operation["value"]
        else:
            assert (last in inside) == (operation["op"] == "replace")
            inside[last] = operation["value"]
    return result


def test_a_launch_command_has_the_size_that_it_starts(ask: Ask) -> None:
    """Its layout on a model that holds it, with chance, room and what is free; nothing changes."""
    size = ask(SCRIPT)
    assert (size["gpus"], size["nodes"], size["gpus_per_node"]) == (4, 1, 4)
    assert size["gpu"] in LABELS
    assert size["memory"]["fit_probability"] >= 0.95
    assert (size["room"], size["wait_minutes"]) == ("free now", [0.0, 0.0, 0.0])
    assert (size["limit_hours"], size["hours"], size["finish_earliest"]) == (2.0, [], None)
    assert size["finish_latest"] is not None
    assert (size["options"], "consent" in size["unchanged"]) == ({}, True)
    smaller = [note for note in size["notes"] if "would hold the same step" in note]
    assert smaller
    assert "gradient_accumulation=4" in smaller[0]


def test_a_described_job_gets_its_number_and_its_limit(ask: Ask) -> None:
    """The options say the type, the nodes, a limit that suffices, and the plan's values."""
    size = ask(DESCRIBED)
    each, nodes = size["gpus_per_node"], size["nodes"]
    assert each * nodes == size["gpus"]
    assert size["hours"][1] <= size["limit_hours"] < size["hours"][1] + 1
    word = {H100: "h100", A100: "a100"}[size["gpu"]]
    options = dict(size["options"])
    export = options.pop("export").split(",")
    assert options == {
        "gres": f"gpu:{word}:{each}", "nodes": str(nodes), "time": f"{size['limit_hours']:g}:00:00",
    }  # fmt: skip
    assert export[0] == "ALL"
    told = {name.upper(): value for name, value in size["plan"].items()}
    assert sorted(export[1:]) == sorted(f"TRIMTAB_{name}={told[name]}" for name in READS.split())
    assert any(text.startswith("its time limit of 0.1") for text in size["warnings"])


def test_the_command_line_goes_before_the_script(ask: Ask) -> None:
    """Both are merged by sbatch, which hands on what it made of them."""
    head = "#TRIMTAB options = '--gres=gres:gpu:h100:2 --nodes=2-0 --time=1-00:00:00'\n"
    read = read_script(head + SCRIPT)
    assert (read.gpu, read.each, read.nodes, read.limit_hours) == ("h100", 2, 2, 24.0)
    assert ask(head + SCRIPT.replace("PER_NODE=4", "PER_NODE=2"))["nodes"] == 2


def test_a_partition_has_only_its_nodes(ask: Ask) -> None:
    """A job that would fit elsewhere gets no model that its partition lacks."""
    assert ask(SCRIPT.replace("-N 1", "-N 1 -p old"))["gpu"] == A100
    problem = ask(SCRIPT.replace("-N 1", "-N 1 -p nowhere"), 422)
    assert "nowhere" in problem["detail"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/bash\nsleep 1\n", "no command of the job starts"),
        (SCRIPT.replace("Qwen/Qwen2.5-0.5B", "/etc"), "neither here nor among the known"),
        (SCRIPT.replace("--bf16", "--fsdp_config /etc/passwd"), "job's own machine"),
        (SCRIPT.replace("--bf16", "--deepspeed /etc/hostname"), "job's own machine"),
        (SCRIPT.replace("gpu:a100:4", "gpu:a100:4,gpu:h100:1"), "--gres="),
        (SCRIPT.replace("-N 1", "-N 0"), "--nodes=0"),
        (f"#TRIMTAB size = \n{SCRIPT}", "not valid TOML"),
        (f"#TRIMTAB tokens = 1\n{SCRIPT}", "unknown key 'tokens'"),
        (DESCRIBED.replace("tinyllama", "no-such"), "no-such"),
        (DESCRIBED.replace("name = \"tinyllama-1.1b\"", "config = '/etc/passwd'"), "names a file"),
        ("python train.py\n".join(["A=xxxxxxxxxx\n"] + ["A=$A$A\n"] * 30), "longer than"),
        ("srun vllm serve Qwen/Qwen2.5-0.5B --max-model-len 2048", "serves a model"),
    ],
)  # fmt: skip
def test_what_is_not_read_has_no_size(ask: Ask, text: str, reason: str) -> None:
    """Nothing is assumed of it; no file of the server is read."""
    assert reason in ask(text, 422)["detail"]


def test_names_of_a_deepspeed_file_say_what_they_say(ask: Ask) -> None:
    """Its content is on another machine, its name is in the command."""
    notes = ask(SCRIPT.replace("--bf16", "--bf16 --deepspeed ds_zero3.json"))["notes"]
    assert any("ds_zero3.json is not here: read by its name" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("90", 1.5), ("90:30", 1.5 + 30 / 3600), ("01:30:00", 1.5), ("2-0", 48.0),
        ("1-12:30", 36.5), ("1-12:30:36", 36.51), ("400-0", 9600.0), ("UNLIMITED", None),
        ("infinite", None), ("", None), ("0", None), ("2982616-04:14:00", None), ("-1", None),
    ],
)  # fmt: skip
def test_a_time_of_slurm(text: str, hours: float | None) -> None:
    """As sbatch(1) defines --time; what sbatch holds for no limit is none."""
    assert seconds_of_limit(text) == (None if hours is None else pytest.approx(3600 * hours))


@pytest.mark.parametrize(
    "text",
    ["NONE", "foo", "2h", "1.5", "1:2:3:4", "1-2-3", ":30", "30:", "1-", "-5", "1 h", "$LIMIT"],
)
def test_what_is_no_time_of_slurm_is_not_taken_for_no_limit(ask: Ask, text: str) -> None:
    """What sbatch refuses is refused, with the option and its value."""
    with pytest.raises(ValueError, match="no time limit"):
        seconds_of_limit(text)
    refused = ask(SCRIPT.replace("--time=02:00:00", f"--time='{text}'"), 422)
    assert f"--time={text}" in refused["detail"]


@pytest.mark.parametrize("text", ["--gres=gpu", "-G 4", "--gpus=a100:4", "--gpus-per-node=a100:4"])
def test_the_ways_to_ask_for_gpus(text: str) -> None:
    """Of a number of all nodes each gets its share."""
    read = read_script(SCRIPT.replace("--gres=gpu:a100:4 -N 1", f"{text} -N 2"))
    count = 1 if text == "--gres=gpu" else 4 if "per-node" in text else 2
    assert (read.each, read.nodes) == (count, 2)
    with pytest.raises(ChangeRefusedError, match="--gpus=3 on 2 nodes"):
        read_script("#SBATCH --gpus=3 -N2")


def test_a_suspended_job_is_moved_to_nodes_that_hold_it(ask: Ask) -> None:
    """Only fields change that every server lets one change; the schema of each release holds."""
    document = job(activeDeadlineSeconds=60)
    document["metadata"]["annotations"]["trimtab/job"] = "[data]\ntokens = 1e8\n"
    size = ask(document)
    assert size["unchanged"] == ""
    changed = patched(document, size["patch"])
    assert schema_refusal(changed) is None
    template = changed["spec"]["template"]["spec"]
    assert template.pop("nodeSelector") == {PRODUCT: LABELS[size["gpu"]]}
    assert changed["spec"].pop("activeDeadlineSeconds") == 3600 * size["limit_hours"] > 60
    document["spec"].pop("activeDeadlineSeconds")
    assert changed == document
    paths = [entry["path"] for entry in size["patch"] if entry["op"] != "test"]
    assert all(path.startswith(MAY_CHANGE) for path in paths)
    guards = [entry["path"] for entry in size["patch"] if entry["op"] == "test"]
    assert guards == ["/metadata/resourceVersion", "/spec/suspend"]
    again = ask(patched(document | {"spec": {**document["spec"], "activeDeadlineSeconds": 60}},
                        size["patch"]))  # fmt: skip
    assert (again["patch"], again["unchanged"]) == ([], "it has this size already")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"suspend": False}, "not suspended"),
        ({"suspend": None}, "not suspended"),
        ({"suspend": "true"}, "not suspended"),
    ],
)
def test_a_running_job_is_never_patched(ask: Ask, change: dict[str, Any], reason: str) -> None:
    """Only true itself says that it is suspended."""
    size = ask(job(**change))
    assert size["patch"] == []
    assert reason in size["unchanged"]


def test_a_job_is_patched_by_its_owners_word_alone(ask: Ask) -> None:
    """No annotation, another word, nodes that its owner chose: it is shown, not patched."""
    for annotations in ({}, {"trimtab/size": "show"}, {"trimtab/size": "Apply"}, None):
        document = job()
        document["metadata"]["annotations"] = annotations
        size = ask(document)
        assert (size["patch"], "consent" in size["unchanged"]) == ([], True)
    for choice in ({"nodeSelector": {"zone": "a"}}, {"affinity": {"nodeAffinity": {"x": 1}}},
                   {"nodeSelector": ["zone"]}):  # fmt: skip
        document = job()
        document["spec"]["template"]["spec"] |= choice
        assert "its owner chose nodes" in ask(document)["unchanged"]
    document = job()
    del document["metadata"]["resourceVersion"]
    assert "resourceVersion" in ask(document)["unchanged"]


def test_a_model_of_two_labels_is_not_selected(store: Store, ask: Ask) -> None:
    """A selector names one: half of the nodes would be left out."""
    assert ask(job())["unchanged"] == ""
    labels = {name: f"{name}-label" for name in ("h1", "h2", "a1", "a2")}
    store.keep(make_collected(jobs=(), nodes=tuple(nodes(**labels)), batch_id="labels"))
    assert "no one label" in ask(job())["unchanged"]


def test_a_train_job_gets_its_number_of_gpus(ask: Ask) -> None:
    """Nodes, processes, GPUs, model and the plan's values; other variables stay."""
    trainer = {
        "image": "train:1", "command": ["sh", "-c", f"torchrun train.py {TOLD}"], "numNodes": 4,
        "env": [{"name": "A", "value": "b"}, {"name": "TRIMTAB_GPUS", "value": "99"}],
    }  # fmt: skip
    document = job() | {"kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1"}
    document["spec"] = {"suspend": True, "trainer": trainer}
    document["metadata"]["annotations"]["trimtab/job"] = RECIPE
    size = ask(document)
    changed = patched(document, size["patch"])["spec"]
    each = size["gpus_per_node"]
    assert (changed["trainer"]["numNodes"], changed["trainer"]["numProcPerNode"]) == (
        size["nodes"], each,
    )  # fmt: skip
    assert changed["trainer"]["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": str(each)}}
    env = {entry["name"]: entry["value"] for entry in changed["trainer"]["env"]}
    assert env.pop("A") == "b"
    assert env == {f"TRIMTAB_{name}": size["plan"][name.lower()] for name in READS.split()}
    assert changed["podTemplateOverrides"][0]["spec"] == {
        "nodeSelector": {PRODUCT: LABELS[size["gpu"]]}
    }
    document["metadata"]["annotations"].pop("trimtab/job")
    refused = document | {"spec": {"suspend": True, "trainer": {**trainer, "numNodes": "many"}}}
    assert "'many' pods" in ask(refused, 422)["detail"]


def test_a_job_set_is_read_through_its_template(ask: Ask) -> None:
    """Its one replicated job; of several nothing says which one trains."""
    inner = job()["spec"] | {"parallelism": 1}
    del inner["suspend"]
    entry = {"name": "workers", "replicas": 2, "template": {"spec": inner}}
    document = job() | {"kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2"}
    command = COMMAND.replace("--nproc-per-node 4", "--nnodes 2 --nproc-per-node 4").split()
    inner["template"]["spec"]["containers"][0]["command"] = command
    document["spec"] = {"suspend": True, "replicatedJobs": [entry]}
    size = ask(document)
    assert (size["gpus"], size["nodes"]) == (8, 2)
    (change,) = (item for item in size["patch"] if item["op"] != "test")
    assert change["path"] == "/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector"
    document["spec"]["replicatedJobs"] = [entry, entry]
    assert "2 replicated jobs" in ask(document, 422)["detail"]


def test_a_job_that_does_not_say_its_gpus_for_sure(ask: Ask) -> None:
    """Shares of GPUs, other kinds, and more processes than GPUs."""
    document = job()
    document["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/mig-1g.10gb": "1"}
    }
    assert "parts of GPUs" in ask(document, 422)["detail"]
    assert "0 replicated jobs" in ask(job() | {"kind": "Deployment"}, 422)["detail"]
    warnings = ask(job(gpus=2))["warnings"]
    assert "it asks for 2 GPUs and starts 4 processes" in warnings


def test_a_full_fleet_has_a_wait(store: Store, ask: Ask) -> None:
    """The forecast of the queue, from its past; without a past nothing is said."""
    now = utc_now()
    held = [
        make_job(
            job_id=f"slurm:{number}", platform=Platform.SLURM, namespace="gpu", gpu_model=model,
            gpu_count=gpus, last_seen_at=now, source="slurm test",
            scheduler=SchedulerFacts(
                state=JobState.RUNNING, nodes=(node,), submitted_at=now - timedelta(hours=2),
                started_at=now - timedelta(hours=1), time_limit_seconds=4 * 3600.0,
            ),
        )
        for number, (node, model, gpus) in enumerate(
            (("h1", H100, 8), ("h2", H100, 8), ("a1", A100, 4), ("a2", A100, 4))
        )
    ]  # fmt: skip
    store.keep(make_collected(jobs=tuple(held), nodes=tuple(nodes()), batch_id="full"))
    size = ask(SCRIPT.replace("-N 1", "-N 1 -p gpu"))
    assert "has to wait" in size["room"]
    low, median, high = size["wait_minutes"]
    assert 0 <= low <= median <= high
    assert high > 0
