"""The launch of a placed job: the words of its command, and what its environment tells it.

Words are kept apart to the end, so that each target can quote them in its own way; the only words
that a shell or Kubernetes may expand are our own references.
"""

from dataclasses import dataclass

from dashboard.submission.job.command_options import IN_BRACES
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.placement import Placement

PORT = 29_500


@dataclass(frozen=True, slots=True)
class Reference:
    """A word that the target fills in, such as the address of the first node."""

    name: str


Word = str | Reference

ADDRESS = Reference("address")
ENDPOINT = Reference("endpoint")
RUN = Reference("run")
NODE_RANK = Reference("node rank")


def plan_values(job: JobFile, placement: Placement) -> dict[str, str]:
    """Return the values that a command may name in braces; TRIMTAB_… variables hold them too."""
    plan = placement.plan
    spread = plan.job.parallelism
    values = {
        "gpus": str(plan.gpus),
        "nodes": str(placement.node_count),
        "gpus_per_node": str(placement.gpus_per_node),
        "data_parallel": str(spread.data),
        "tensor_parallel": str(spread.tensor),
        "pipeline_parallel": str(spread.pipeline),
        "sharding": str(spread.sharding),
        "micro_batch": str(plan.job.micro_batch or 1),
        "gradient_accumulation": str(plan.job.gradient_accumulation or 1),
        "recompute": str(plan.job.recompute or "none"),
        "global_batch": str(job.global_batch),
        "sequence_length": str(job.sequence_length),
    }
    return values | ({"data_path": job.data_path} if job.data_path else {})


def environment_of(job: JobFile, placement: Placement) -> dict[str, str]:
    """Return the job's own variables and those that tell the plan."""
    plan = {f"TRIMTAB_{name.upper()}": value for name, value in plan_values(job, placement).items()}
    return dict(job.environment) | plan


def program_words(job: JobFile, placement: Placement) -> tuple[str, ...]:
    """Return the command with the plan's values in place of {micro_batch} and the like."""
    values = plan_values(job, placement)
    return tuple(
        IN_BRACES.sub(lambda match: values.get(match[1], match[0]), word) for word in job.command
    )


def launch_words(job: JobFile, placement: Placement, *, rank: Word | None) -> tuple[Word, ...]:
    """Return the words that start the job on one node.

    torchrun starts a process per GPU and gives each its RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT. With `rank` the nodes know theirs, without it they meet at the first one.
    """
    program = program_words(job, placement)
    if job.launcher == "none":
        return program
    words: list[Word] = [
        "torchrun",
        f"--nnodes={placement.node_count}",
        f"--nproc-per-node={placement.gpus_per_node}",
    ]
    if placement.node_count == 1:
        words += ["--standalone"]
    elif rank is None:
        words += ["--rdzv-backend=c10d", "--rdzv-id", RUN, "--rdzv-endpoint", ENDPOINT]
    else:
        words += ["--node-rank", rank, "--master-addr", ADDRESS, f"--master-port={PORT}"]
    first = program[0]
    if not first.endswith(".py"):
        words.append("--no-python")
    return (*words, *program)
