"""What keeps a requeue from starting a job again, or its script from running: no Slurm needed."""

import getpass
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from beds.slurm_replay import RECORDED

from collectors.slurm.records import read_node
from dashboard.apply.slurm.change import capacity
from dashboard.apply.slurm.change.capacity import (
    closed_partitions,
    groups_of,
    missed_deadline,
    taken_gpus,
)
from dashboard.apply.slurm.change.moves import Move, arranged
from dashboard.apply.slurm.change.submitted_options import (
    environment_refusals,
    named_beyond,
    submitted_with,
)
from dashboard.apply.slurm.client.client import Partition
from dashboard.apply.slurm.client.job_state import JobFacts, read_job
from dashboard.apply.slurm.client.requests import COMMANDS

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
GRES = Move(verb="update", field="Gres", before="gpu:4", after="gpu:2")
LIMIT = Move(verb="update", field="TimeLimit", before="60", after="30")
SCRIPT = "#!/bin/bash\n#SBATCH -p gpu\n#SBATCH {option}\nsrun python train.py --steps 4\n"


def facts(**changes: object) -> JobFacts:
    """A running job of a recorded answer: account ml, QOS normal, an hour's limit, two nodes."""
    jobs = json.loads((RECORDED / "22.05" / "squeue.json").read_text(encoding="utf-8"))["jobs"]
    found = read_job(next(entry for entry in jobs if "RUNNING" in entry["job_state"]), [], NOW)
    job = replace(found.job, account="ml", qos="normal", user="somebody", time_limit_seconds=3600.0)
    values = {"job": job, "nodes_asked": 2, "least_seconds": 3600.0, "deadline_at": None}
    return replace(found, **(values | changes))  # type: ignore[arg-type]


def test_a_requeue_says_that_others_may_fill_the_limits_of_qos_and_account() -> None:
    """The job may wait for them: a change of its time limit, in place, has no such note."""
    state = {
        "JobState": "RUNNING", "interface": f"{COMMANDS} 24.11", "batch": "yes", "requeue": "yes",
        "Restarts": "0",
    }  # fmt: skip
    fewer = arranged((("Gres", "gpu:4", "gpu:2"),), state, allow_requeue=True)
    said = [note for note in fewer.notes if "QOS" in note]
    assert len(said) == 1
    assert all(word in said[0] for word in ("account", "fill the limits", "may wait"))
    shorter = arranged((("TimeLimit", "60", "30"),), state, allow_requeue=True)
    assert not [note for note in shorter.notes if "QOS" in note]


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        (Partition(), ""),
        (Partition(allowed={"account": frozenset({"ml", "vision"})}), ""),
        (Partition(allowed={"account": frozenset({"vision"})}), "its account (ml)"),
        (Partition(denied={"account": frozenset({"ml"})}), "its account (ml)"),
        (Partition(allowed={"QOS": frozenset({"urgent"})}), "its QOS (normal)"),
        (Partition(denied={"QOS": frozenset({"normal"})}), "its QOS (normal)"),
        (Partition(allowed={"group": frozenset({"staff"})}), "its group (research)"),
        (Partition(allowed={"group": frozenset({"staff", "research"})}), ""),
        (Partition(max_nodes=1), "1 node at most"),
        (Partition(max_nodes=2), ""),
    ],
)
def test_a_partition_that_no_longer_admits_a_job(
    monkeypatch: pytest.MonkeyPatch, partition: Partition, said: str
) -> None:
    """A job that runs there is not asked; requeued, it is. Another of its partitions suffices."""
    monkeypatch.setattr(capacity, "groups_of", lambda user: {"research"} - {user})
    refused = closed_partitions({"gpu": partition}, facts())
    assert said in "; ".join(refused)
    assert bool(refused) is bool(said)
    assert closed_partitions({"gpu": partition, "over": Partition()}, facts()) == ()


@pytest.mark.parametrize(
    ("in_use", "said"),
    [("gpu:h100:0", ""), ("gpu:h100:8", "wait for others"), ("gpu:h100:?", "are not known")],
)
def test_gpus_of_a_node_that_are_not_known_to_be_free_are_not_free(in_use: str, said: str) -> None:
    """Nor are they taken: the requeued job might wait."""
    node = {"name": "other", "state": "IDLE", "partitions": ["gpu"], "gres": "gpu:h100:8"}
    known = facts(gpus_by=(("node", "gpu:4"),), nodes_asked=1, nodes_maximum=1)
    known = replace(known, job=replace(known.job, partition="gpu", nodes=("n1",)))
    wait = taken_gpus(known, (GRES,), (read_node(node | {"gres_used": in_use}),))
    assert said in wait
    assert bool(said) is bool(wait)


@pytest.mark.parametrize("field", ["requeue", "batch_flag"])
@pytest.mark.parametrize(
    ("value", "may"),
    [(True, True), (1, True), (False, False), (0, False), (None, False), ("no", False),
     ({"set": True, "number": 0}, False)],
)  # fmt: skip
def test_a_flag_that_is_not_understood_allows_nothing(field: str, value: object, may: bool) -> None:
    """A requeue of a job that may not be requeued loses its run."""
    jobs = json.loads((RECORDED / "22.05" / "squeue.json").read_text(encoding="utf-8"))["jobs"]
    known = read_job(jobs[0] | {field: value}, [], NOW)
    assert (known.may_requeue if field == "requeue" else known.is_batch) is may


def test_groups_are_those_of_this_machine() -> None:
    """Nothing is refused for a group of somebody whom it does not know, or of root."""
    assert groups_of("nobody-of-that-name") == set()
    assert groups_of("root") == set()
    assert groups_of("daemon") or getpass.getuser() != "root"


@pytest.mark.parametrize(
    ("minutes", "least", "refused"),
    [(62, 3600.0, True), (66, 3600.0, False), (62, 1800.0, False), (None, 3600.0, False),
     (5, None, False)],
)  # fmt: skip
def test_a_deadline_that_the_requeued_job_would_miss(
    minutes: int | None, least: float | None, refused: bool
) -> None:
    """Slurm ends a waiting job whose time limit, or least time, no longer fits before it."""
    at = None if minutes is None else NOW + timedelta(minutes=minutes)
    assert bool(missed_deadline(facts(deadline_at=at, least_seconds=least))) is refused


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("--gres=gpu:h100:4", ""),
        ("--gpus-per-node=4", "--gpus-per-node"),
        ("--gpus-per-node h100:4", "--gpus-per-node"),
        ("--gpus=4", "--gpus"),
        ("--gpus-per-n=4", "--gpus-per-n"),
        ("-G 4", "-G"),
        ("-G4", "-G"),
        ("--gpus-per-task=1 -n 4", "--gpus-per-task"),
        ("--gpu-bind=none", ""),
        ("--gpu-freq=high", ""),
        ("-N1-2 --gres=gpu:4", "-N1-2"),
        ("--nodes=2-4", "-N2-4"),
        ("-N 2", ""),
        ("--nodes=2", ""),
    ],
)
def test_the_option_is_found_in_script_and_submit_line(option: str, found: str) -> None:
    """Of a script only its lines of #SBATCH count: what its programs are told is theirs."""
    assert submitted_with([SCRIPT.format(option=option)]) == found
    assert submitted_with([f"sbatch -p gpu {option} train.sh"]) == found
    assert submitted_with(["sbatch train.sh", SCRIPT.format(option="-N 1")]) == ""


def test_a_size_that_the_environment_repeats_is_refused() -> None:
    """Unknown is said; a change of no GPUs is left alone."""
    plain, gpus = SCRIPT.format(option="--gres=gpu:4"), SCRIPT.format(option="--gpus-per-node=4")
    assert environment_refusals((GRES,), plain, "sbatch a.sh") == ((), ())
    assert environment_refusals((LIMIT,), gpus, None) == ((), ())
    for script, line in ((gpus, "sbatch a.sh"), (plain, "sbatch -G 4 a.sh"), (gpus, None)):
        refusals, warnings = environment_refusals((GRES,), script, line)
        assert "srun in the script" in refusals[0]
        assert warnings == ()
    assert [len(refusal) for refusal in environment_refusals((GRES,), plain, None)] == [0, 1]
    for line in ("sbatch --gres gpu:4 a.sh", "sbatch --gre=shard:1,gpu:4 a.sh"):
        assert environment_refusals((GRES,), SCRIPT.format(option="-N 1"), line) == ((), ())
    for line in ("sbatch a.sh", "sbatch --gres=shard:1 a.sh"):
        refusals, _warnings = environment_refusals((GRES,), SCRIPT.format(option="-N 1"), line)
        assert "neither its submit line nor its script asks for GPUs" in refusals[0]


@pytest.mark.parametrize(
    ("line", "gpus", "nodes"),
    [
        ("srun --gres=gpu:h100:2 -n1 sleep 9", 1, 0),
        ("srun --gres gpu:2 ./a", 1, 0),
        ("srun --gres=shard:1,gpu:a100_1g.10gb:3 ./a", 2, 0),
        ("srun \\\n  --gpus-per-node=h100:4 ./a", 3, 0),
        ("srun --gpus 4 ./a", 3, 0),
        ("torchrun --standalone --nproc_per_node=4 train.py", 3, 0),
        ("torchrun --nproc-per-node 4 train.py", 3, 0),
        ("deepspeed --num_gpus=8 train.py", 7, 0),
        ("vllm serve m --tensor-parallel-size 2", 1, 0),
        ("python train.py --devices=2", 1, 0),
        ("export CUDA_VISIBLE_DEVICES=0,1,2", 2, 0),
        ("srun -n4 --gpu-bind=map_gpu:0,1,2,3 ./a", 3, 0),
        ("srun -n2 --gpu-bind verbose,mask_gpu:0x1,0x2 ./a", 1, 0),
        ("srun -n4 --gpu-bind=closest ./a", 0, 0),
        ("CUDA_VISIBLE_DEVICES=0,1 python a.py", 1, 0),
        ("srun -n 8 -N2 ./a", 0, 1),
        ("srun --nodes=4 ./a", 0, 3),
        ("torchrun --nnodes 2 --rdzv_id=7 a.py", 0, 1),
        ("srun --gres=gpu:$GPUS --gpus=${N} ./a", 0, 0),
        ("NGPU=4\ntorchrun --nproc-per-node=$NGPU train.py", 3, 0),
        ('export GPUS="4"; srun --gres=gpu:${GPUS} ./a', 3, 0),
        ('readonly N=2\nsrun -n 8 -N "$N" ./a', 0, 1),
        ("torchrun --nproc-per-node=${NGPU:-4} train.py", 3, 0),
        ("NGPU=${NGPU:-4}\ntorchrun --nproc-per-node=$NGPU train.py", 3, 0),
        ("declare -i A=4\nB=$A\ntorchrun --nproc-per-node ${B} a.py", 3, 0),
        ("NGPU=4\nNGPU=1\ntorchrun --nproc-per-node=$NGPU train.py", 0, 0),
        ("NGPU=4\nNGPU=$(nvidia-smi -L | wc -l)\ntorchrun --nproc-per-node=$NGPU a.py", 0, 0),
        ("torchrun --nproc-per-node=${SLURM_GPUS_ON_NODE:-8} train.py", 0, 0),
        ("NGPU=$SLURM_GPUS_ON_NODE\ntorchrun --nproc-per-node=$NGPU train.py", 0, 0),
        ("NGPU=$(nvidia-smi -L | wc -l)\ntorchrun --nproc-per-node=$NGPU train.py", 0, 0),
        ("# NGPU=4\ntorchrun --nproc-per-node=$NGPU train.py", 0, 0),
        ("torchrun --nproc_per_node $((1+1)) train.py", 1, 0),
        ("A=2\ntorchrun --nproc_per_node=$(( A * 2 )) train.py", 3, 0),
        ("A=2\nB=$(($A*${A}-1))\ntorchrun --nproc_per_node=$B train.py", 2, 0),
        ("torchrun --nproc_per_node=$((SLURM_NTASKS/2)) train.py", 0, 0),
        ("torchrun --nproc_per_node=$((4/0)) train.py", 0, 0),
        ("deepspeed --num_gpus 4 train.py", 3, 0),
        ("torchrun --nproc_per_node=gpu --nnodes=1:4 train.py", 0, 0),
        ("# srun --gres=gpu:8 ./a", 0, 0),
        ("# was: true; srun --gres=gpu:8 ./a", 0, 0),
        ("python train.py --gpu 3 --learning-rate 4", 0, 0),
        ("export CUDA_VISIBLE_DEVICES=3", 3, 0),
        ("CUDA_VISIBLE_DEVICES=0 ./a", 0, 0),
        ("CUDA_VISIBLE_DEVICES=$i ./a", 0, 0),
        ("CUDA_VISIBLE_DEVICES=GPU-1a2b,GPU-3c4d ./a", 1, 0),
        ("deepspeed --include localhost:0,2 train.py", 2, 0),
        ("torchrun --nproc_per_node \\\n  4 train.py", 3, 0),
        ("torchrun --nproc_per_node   4 train.py", 3, 0),
        ("srun --ntasks-per-node=2 --gpus-per-task=1 ./a", 1, 0),
        ("srun -n 4 --gpus-per-task=1 ./a", 3, 0),
        ("srun -n1 --gpus-per-task=2 ./a", 1, 0),
        ("ls -N 4 | srun ./a; tail -N3", 0, 0),
    ],
)
def test_what_a_script_starts_with_more_than_its_job_would_have(
    line: str, gpus: int, nodes: int
) -> None:
    """`gpus` and `nodes` are the most that are too few, 0 where any number will do."""
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:8\n{line}\n"
    assert bool(named_beyond(script, gpus=gpus or 1, nodes=None)) is bool(gpus)
    assert bool(named_beyond(script, gpus=None, nodes=nodes or 1)) is bool(nodes)
    assert not named_beyond(script, gpus=gpus + 1, nodes=nodes + 1)
    assert not named_beyond(script, gpus=None, nodes=None)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("export WORLD_SIZE=4\npython train.py", "WORLD_SIZE=4"),
        ('WORLD_SIZE="4" python train.py', 'WORLD_SIZE="4'),
        ("N=4\nexport WORLD_SIZE=$N", "WORLD_SIZE=4"),
        ("mpirun -np 4 ./a", "mpirun -np 4"),
        ("mpirun --bind-to none -np $((2*2)) ./a", "mpirun --bind-to none -np 4"),
        ("/opt/mpi/bin/mpiexec -n 4 ./a", "mpiexec -n 4"),
        ("horovodrun -np 4 python train.py", "horovodrun -np 4"),
        ("accelerate launch --num_processes 4 train.py", "--num_processes 4"),
        ("mpirun -np 3 ./a", "mpirun -np 3"),
        ("mpirun -np 2 ./a", ""),
        ("mpirun -np 64 ./on_cpus", ""),
        ("mpirun -np $SLURM_NTASKS ./a", ""),
        ("mpirun ./a", ""),
        ("# mpirun -np 4 ./a", ""),
        ("export WORLD_SIZE=$SLURM_NTASKS", ""),
        ("export MY_WORLD_SIZE=4", ""),
    ],
)
def test_processes_of_the_whole_job_count_over_its_nodes(line: str, named: str) -> None:
    """Two nodes of two GPUs, which lose a node or a GPU each: four processes have no longer four.

    What the job has not as many GPUs for now is no number of them.
    """
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:2\n{line}\n"
    fewer = (Move(verb="update", field="Gres", before="gpu:2", after="gpu:1"),
             Move(verb="update", field="NumNodes", before="2", after="1"))  # fmt: skip
    for move in fewer:
        refusals, _warnings = environment_refusals(
            (move,), script, "sbatch a.sh", tasks=(4, 2), gpus_now=4
        )
        assert [f"says {named!r}" in text for text in refusals] == [True] * bool(named), refusals


@pytest.mark.parametrize(
    ("tasks", "nodes", "refused"), [(1, 1, False), (2, 1, True), (2, 2, False), (4, 2, True)]
)
def test_gpus_for_each_task_count_as_often_as_a_node_has_tasks(
    tasks: int, nodes: int, refused: bool
) -> None:
    """Those of the job, where srun names none of its own."""
    script = "#!/bin/bash\n#SBATCH --gres=gpu:2\nsrun --gpus-per-task=1 ./a\n"
    assert bool(named_beyond(script, gpus=1, nodes=None, tasks=(tasks, nodes))) is refused


@pytest.mark.parametrize(
    ("tasks", "nodes", "warned"),
    [(1, 1, False), (2, 1, False), (4, 1, True), (8, 2, True), (5, 1, False), (4, 2, False)],
)
def test_tasks_that_would_share_gpus_are_warned_of(tasks: int, nodes: int, warned: bool) -> None:
    """From 4 GPUs to 2: only tasks that had one each and would not have."""
    plain = SCRIPT.format(option="--gres=gpu:4")
    _none, warnings = environment_refusals((GRES,), plain, "sbatch a.sh", tasks=(tasks, nodes))
    assert ["would have 2 GPU(s)" in text for text in warnings] == [True] * warned


def test_a_script_that_names_more_is_refused_and_quoted() -> None:
    """Fewer GPUs or nodes are; more are not."""
    script = "#!/bin/bash\n#SBATCH --gres=gpu:4\nsrun -N2 --gres=gpu:h100:4 ./a\n"
    refusals, warnings = environment_refusals((GRES,), script, "sbatch a.sh")
    assert "'--gres=gpu:h100:4'" in refusals[0]
    assert not warnings
    fewer = Move(verb="update", field="NumNodes", before="2-2", after="1-1")
    assert "-N2" in environment_refusals((fewer,), script, "sbatch a.sh")[0][0]
    more = Move(verb="update", field="Gres", before="gpu:4", after="gpu:8")
    assert environment_refusals((more,), script, "sbatch a.sh") == ((), ())
