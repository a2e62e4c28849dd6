"""The exact manifests, as files to read; and what no job file can make of them."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from submission_cases import make_fleet, make_job, node

from dashboard.submission.job.feasible_plans import plans_for
from dashboard.submission.job.fleet import Taint
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.manifest import JobOrder, Manifest
from dashboard.submission.job.placement import Arrival, HostNeed, Placement, place
from dashboard.submission.targets.kubernetes_manifest import kubernetes_manifest
from dashboard.submission.targets.slurm_target import slurm_script
from data.base.errors import ChangeRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue

ORDER = JobOrder(
    submission_id="0123456789ab",
    attempt=1,
    partition="gpu",
    account="ml",
    keep_finished_seconds=604_800,
)
FULL_JOB = {
    "name": "llama-run",
    "model": {"name": "llama3.2-3b"},
    "command": [
        "train.py",
        "--batch",
        "{micro_batch}",
        "--tp={tensor_parallel}",
        "it's $HOME; `id`",
    ],
    "workdir": "/srv/run",
    "log": "/srv/run/%j.log",
    "time_limit_hours": 12,
    "data": {"path": "/srv/data", "claim": "data-claim"},
    "environment": {"WANDB_MODE": "off line"},
    "host": {"cpus_per_gpu": 8, "memory_gib_per_gpu": 60},
}


@cache
def placement_of(job: JobFile, *, nodes: int) -> Placement:
    """The job on so many nodes of two H100."""
    taint = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
    fleet = make_fleet(
        *(node(f"h{number}", gpus=2, free=2, taints=(taint,)) for number in range(nodes))
    )
    types = fleet.gpu_types(load_gpu_catalogue())
    plans = tuple(plan for plan in plans_for(job, types, max_gpus=16) if plan.gpus == 2 * nodes)
    return place(plans, fleet, Arrival(host=HostNeed(), late=lambda _plan: False))


def script_of(job: JobFile, *, nodes: int = 1) -> Manifest:
    """Its batch script."""
    return slurm_script(job, placement_of(job, nodes=nodes), ORDER)


@pytest.mark.parametrize("nodes", [1, 2])
def test_golden_batch_script(golden: Callable[[str, str], None], nodes: int) -> None:
    """The script for sbatch, on one node and on two."""
    golden(f"submission/slurm-{nodes}-nodes.sh", script_of(make_job(**FULL_JOB), nodes=nodes).text)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("kind", ["job", "jobset", "pytorchjob"])
def test_golden_kubernetes_objects(
    golden: Callable[[str, str], None], kind: str, nodes: int
) -> None:
    """The objects of every kind, on one node and on two."""
    job = make_job(**FULL_JOB)
    made = kubernetes_manifest(job, placement_of(job, nodes=nodes), ORDER, kind=kind)
    golden(f"submission/{kind}-{nodes}-nodes.yaml", made.text)


@pytest.mark.parametrize(
    ("memory", "stated", "expected"),
    [(131_072.0, None, "65536M"), (131_071.0, None, "65535M"), (None, None, ""),
     (131_072.0, 4, "8192M")],
)  # fmt: skip
def test_a_batch_script_asks_for_its_share_of_host_memory(
    memory: float | None, stated: int | None, expected: str
) -> None:
    """As for CPUs: of a node of four GPUs two take half, unless the job file says how much."""
    job = make_job(**({"host": {"memory_gib_per_gpu": stated}} if stated else {}))
    fleet = make_fleet(node("h", gpus=4, free=4, memory_mib=memory))
    plans = plans_for(job, fleet.gpu_types(load_gpu_catalogue()), max_gpus=2)
    two = tuple(plan for plan in plans if plan.gpus == 2)
    seat = place(two, fleet, Arrival(host=HostNeed(), late=lambda _plan: False))
    lines = slurm_script(job, seat, ORDER).text.splitlines()
    mem = [line.partition("=")[2] for line in lines if line.startswith("#SBATCH --mem=")]
    assert mem == ([expected] if expected else [])


def test_data_that_nothing_mounts_is_refused_on_kubernetes() -> None:
    """A path without a claim would be an empty folder, if it is there at all."""
    job = make_job(data={"path": "/srv/data"})
    with pytest.raises(ChangeRefusedError, match="nothing would be mounted"):
        kubernetes_manifest(job, placement_of(job, nodes=1), ORDER, kind="job")
    assert "/srv/data" in slurm_script(job, placement_of(job, nodes=1), ORDER).text


def test_an_image_is_needed_on_kubernetes() -> None:
    """A job without an image can go to Slurm, not to Kubernetes."""
    job = replace(make_job(), image="")
    with pytest.raises(ChangeRefusedError, match="names no image"):
        kubernetes_manifest(job, placement_of(job, nodes=1), ORDER, kind="job")


CHARACTERS = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
TEXTS = st.text(CHARACTERS, min_size=1, max_size=40)
WORDS = st.lists(TEXTS.filter(lambda word: "{" not in word), min_size=1, max_size=4)


def options_in(script: str) -> list[str]:
    """The lines that sbatch reads as options."""
    return [line for line in script.splitlines() if line.lstrip().startswith("#SBATCH")]


@settings(deadline=None)
@given(words=WORDS, value=TEXTS)
def test_no_word_leaves_its_quotes(words: list[str], value: str) -> None:
    """A shell reads back exactly the author's words and value, and sbatch no option more."""
    placement = placement_of(make_job(), nodes=1)
    job = make_job(command=["train.py", *words], environment={"VALUE": value})
    script = slurm_script(job, placement, ORDER).text
    lines = script.splitlines()
    assert shlex.split(lines[-1])[-len(words) :] == words
    exported = [shlex.split(line)[1] for line in lines if line.startswith("export VALUE=")]
    assert exported == [f"VALUE={value}"]
    assert options_in(script) == options_in(slurm_script(make_job(), placement, ORDER).text)


@settings(deadline=None)
@given(words=WORDS, value=TEXTS)
def test_no_word_leaves_its_yaml(words: list[str], value: str) -> None:
    """YAML reads back exactly the author's words, with every dollar doubled."""
    placement = placement_of(make_job(), nodes=1)
    job = make_job(command=["train.py", *words], environment={"VALUE": value})
    made = kubernetes_manifest(job, placement, ORDER, kind="job")
    (one,) = yaml.safe_load_all(made.text)
    (container,) = one["spec"]["template"]["spec"]["containers"]
    assert container["command"][-len(words) :] == [word.replace("$", "$$") for word in words]
    assert {"name": "VALUE", "value": value.replace("$", "$$")} in container["env"]


def test_every_value_of_the_plan_has_a_name_of_its_own() -> None:
    """Data parallelism and the path of the data are told apart, in words and in variables."""
    job = make_job(data={"path": "/srv/data"}, command=["x", "{data_parallel}", "{data_path}"])
    placement = placement_of(job, nodes=2)
    lines = slurm_script(job, placement, ORDER).text.splitlines()
    degree = placement.plan.job.parallelism.data
    assert shlex.split(lines[-1])[-2:] == [str(degree), "/srv/data"]
    assert f"export TRIMTAB_DATA_PARALLEL={degree}" in lines
    assert "export TRIMTAB_DATA_PATH=/srv/data" in lines
