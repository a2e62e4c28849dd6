"""What two cycles propose for drawn jobs of a real Slurm can be made."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_apply import GPU_MODELS, applier_of
from beds.slurm_files import BedNode
from outsiders.campaign import SEED, scenario_count, source_of
from outsiders.proposals import CYCLES, Fleet, OlderJobs, Proposals, readings
from outsiders.slurm.bystanders import changed, records
from reliability import Measured

from collectors.slurm.jobs import slurm_collector
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.settings.apply import SlurmApplySettings
from data.settings.sources import SlurmSettings
from data.store import open_store

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.slow_end]
MODELS = {"h100": "H100-SXM5-80GB", "a100": "A100-SXM4-80GB"}
CPUS = 16
NODES = (
    *(BedNode(name=f"h{n}", gpu_type="h100", gpus=4, cpus=CPUS, features="h100") for n in (1, 2)),
    *(BedNode(name=f"a{n}", gpu_type="a100", gpus=4, cpus=CPUS, features="a100") for n in (1, 2)),
    BedNode(name="c1", cpus=CPUS, features="cpuonly"),
)
FURTHER = """\
Licenses=solver:2
PartitionName=hot Nodes=h1,h2 MaxTime=UNLIMITED State=UP
PartitionName=over Nodes=h1,a1 MaxTime=UNLIMITED State=UP"""
JOBS = (2, 3, 4, 5, 8)
_HELD = re.compile(r" Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=gpu:\w+:\d+\(IDX:([\d,-]+)\)")


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """A cluster of two GPU models with overlapping partitions."""
    with running_slurm(nodes=NODES, further=FURTHER) as cluster:
        yield cluster


def options(source: random.Random) -> list[str]:
    """Return the options of sbatch of one job."""
    kind, each = (
        source.choice(("h100:", "a100:", "h100:", "a100:", "")),
        source.choice((1, 2, 4, 4)),
    )
    asked = source.choice(
        (
            *([f"--gres=gpu:{kind}{each}"],) * 5,
            [f"--gpus={kind}{each}"],
            [f"--gpus-per-node={kind}{each}", f"-N{source.choice((1, 2))}"],
            [f"--gpus-per-task={kind}1", f"-n{each}"],
            [f"--gpus-per-socket={kind}{each}", "--sockets-per-node=1"],
        )
    )
    often = lambda share, *said: list(said) if source.random() < share else []  # noqa: E731
    partition = "hot" if kind == "h100:" else "gpu"
    return [
        *asked,
        *often(0.9, "--requeue"),
        *often(0.15, "--mem=500"),
        *often(0.05, "--exclusive"),
        *often(0.1, "--array=0-3%1"),
        *often(0.15, "-Lsolver:1"),
        *often(0.1, "--hold"),
        *often(0.6, source.choice(("--comment=trimtab/checkpoints=true", "--signal=B:USR1@120"))),
        f"-c{source.choice((1, 1, 2))}",
        f"-p{source.choice((partition, partition, 'gpu', 'over,gpu'))}",
        f"-t{source.choice((45, 1200, 1440, 1440))}",
    ]


def held_boards(bed: SlurmBed) -> dict[tuple[str, int], str]:
    """Return the job of every board, as Slurm says it."""
    boards = {(node.name, index): "" for node in NODES for index in range(node.gpus)}
    for line in bed.run("scontrol", "-o", "-d", "show", "job").splitlines():
        if "JobState=RUNNING" not in line:
            continue
        job = line.partition("JobId=")[2].split()[0]
        for nodes, indices in _HELD.findall(line):
            for node in bed.run("scontrol", "show", "hostnames", nodes).split():
                for part in indices.split(","):
                    first, _, last = part.partition("-")
                    for index in range(int(first), int(last or first) + 1):
                        boards[node, index] = f"slurm:{job}"
    return boards


def judge_fleet(
    bed: SlurmBed, number: int, folder: Path, proposals: Proposals
) -> tuple[int, list[str]]:
    """Fill the cluster, run two cycles, and apply what each proposes.

    Give how many objects were none of the targets of a cycle, and what differs of them after it.
    """
    source, others, touched = source_of("slurm proposals", number), 0, list[str]()
    bed.run("scancel", "--quiet", "-u", bed.plan.user, check=False)
    bed.until("no job is left", lambda: not bed.run("squeue", "-h"))
    for node in NODES:  # no fleet begins with the nodes that another has emptied
        bed.run("scontrol", "update", f"NodeName={node.name}", "State=RESUME", check=False)
    for _ in range(source.choice(JOBS)):
        bed.run(
            "sbatch", "--parsable", "--output=/dev/null", *options(source), "--wrap=sleep 3000",
            check=False,
        )  # fmt: skip
    looked = lambda: "PENDING None" not in bed.run("squeue", "-h", "-o", "%T %r")  # noqa: E731
    bed.until("all are looked at", looked)
    requeue = source.random() < 0.85
    models = {node.name: MODELS[node.gpu_type] for node in NODES if node.gpus}
    with open_store(f"duckdb:///{folder}/proposals.duckdb") as store:
        fleet = Fleet(
            store=store,
            collector=OlderJobs(
                slurm_collector(
                    SlurmSettings(
                        mode="commands",
                        conf_file=str(bed.conf),
                        gpu_models=GPU_MODELS,
                    ),
                    load_gpu_catalogue(),
                )
            ),
            applier=applier_of(bed, allow_requeue=requeue),
            settings=Settings(apply_slurm=SlurmApplySettings(enabled=True, allow_requeue=requeue)),
            folder=folder,
            slot_minutes=source.choice((15, 30, 60)),
        )
        for cycle in CYCLES:
            samples = readings(held_boards(bed), models, source, fleet.now())
            proposed = fleet.cycle(samples)
            before = records(bed)
            outcomes = fleet.apply(proposed)
            targets = {outcome.proposal.target.removeprefix("slurm:") for outcome in outcomes}
            others += len({name for _kind, name in before} - targets)
            touched += [
                f"seed {SEED}, fleet {number}, {cycle} cycle: {text}"
                for text in changed(before, records(bed), targets)
            ]
            proposals.judge(cycle, f"seed {SEED}, fleet {number}", outcomes)
    return others, touched


def test_what_is_proposed_can_be_made(bed: SlurmBed, tmp_path: Path, measured: Measured) -> None:
    """97 % of the money of either cycle, on a real scheduler; what is not made is named.

    No job, node, partition or reservation that no change was about shows another field.
    """
    proposals, others, touched = Proposals(), 0, list[str]()
    count = scenario_count(12)
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        count_of_others, changes = judge_fleet(bed, number, folder, proposals)
        others, touched = others + count_of_others, touched + changes
    line = (
        f"slurm proposals: {count} fleets, {proposals}; {len(touched)} changes to {others} other "
        f"objects, seed {SEED}"
    )
    print("\n".join((line, *proposals.failures, *touched)))  # noqa: T201 shown by `make test-all`
    measured(line)
    assert not touched, "\n".join(touched)
    # A run that writes no checkpoints is worth more than most changes of it.
    proposals.require_made(count // 8)


def test_a_change_to_another_object_is_seen(bed: SlurmBed) -> None:
    """A field of a job, a node and a partition that nobody was told to touch."""
    job = bed.submit("--hold", "--gres=gpu:h100:1")
    # The fleet before may have closed it.
    bed.run("scontrol", "update", "NodeName=h1", "State=RESUME", check=False)
    before = records(bed)
    assert changed(before, records(bed), ()) == []
    bed.run("scontrol", "update", f"JobId={job}", "TimeLimit=7")
    bed.run("scontrol", "update", "NodeName=h1", "State=DRAIN", "Reason=test")
    bed.run("scontrol", "update", "PartitionName=hot", "MaxNodes=1")
    found = changed(before, records(bed), ())
    bed.run("scontrol", "update", "NodeName=h1", "State=RESUME")
    bed.run("scontrol", "update", "PartitionName=hot", "MaxNodes=UNLIMITED")
    assert [text.partition(":")[0] for text in sorted({*found})] == [
        f"job {job}",
        "node h1",
        "partition hot",
    ]
    assert [text for text in changed(before, records(bed), (job,)) if "job" in text] == []
    bed.run("scancel", job)
