"""Steps by which a person lets jobs share boards, in the words of what runs them."""

from collections.abc import Sequence
from dataclasses import dataclass

from data.facts.gpu_resources import FRACTION_RESOURCES, SHARED_GPU, VENDOR, WHOLE_GPU
from data.facts.jobs import Platform

_CONFIG_LABEL = f"{VENDOR}device-plugin.config"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingPlan:
    """The sharing to set up: boards, jobs on the fullest one, nodes by name where known.

    `share_mib` is an even part of the fullest board's memory.
    """

    boards: int
    most: int
    nodes: Sequence[str]
    share_mib: float


def steps(plan: SharingPlan, platform: Platform) -> str:
    """Return the steps for the platform; for an unknown one, those of the command line."""
    if platform is Platform.SLURM:
        return _on_slurm(plan)
    if platform is Platform.KUBERNETES:
        return _on_kubernetes(plan)
    return (
        f"Start up to {plan.most} of the jobs on one board (CUDA_VISIBLE_DEVICES), with "
        "`nvidia-cuda-mps-control -d` where they should work at the same time."
    )


def _on_kubernetes(plan: SharingPlan) -> str:
    name = f"shared-{plan.most}"
    nodes = " ".join(plan.nodes) or "NODE"
    fraction = 1 / plan.most
    return f"""1. A configuration of the NVIDIA device plugin ({plan.most} places a board):
apiVersion: v1
kind: ConfigMap
metadata: {{name: device-plugin-configs, namespace: gpu-operator}}
data:
  {name}: |
    version: v1
    sharing:
      timeSlicing:
        renameByDefault: true
        failRequestsGreaterThanOne: true
        resources:
        - {{name: {WHOLE_GPU}, replicas: {plan.most}}}
2. kubectl patch clusterpolicies/cluster-policy --type merge -p \
'{{"spec":{{"devicePlugin":{{"config":{{"name":"device-plugin-configs"}}}}}}}}'
3. Nodes with {plan.boards} boards, drained first: kubectl label node {nodes} \
{_CONFIG_LABEL}={name} --overwrite
4. The jobs named here ask for {SHARED_GPU}: 1 instead of {WHOLE_GPU}: 1, those of one board \
with a pod affinity to each other's node.
Instead of 1-4, where it runs: KAI (annotation gpu-fraction: "{fraction:.2f}"). \
MPS (mps in place of timeSlicing) and HAMi ({FRACTION_RESOURCES[0]}: {plan.share_mib:.0f}, \
{FRACTION_RESOURCES[2]}: 100) end a job that takes more than its part: \
only for jobs that never took more than {plan.share_mib:.0f} MiB.
Back: remove the label, and ask for {WHOLE_GPU}: 1 again."""


def _on_slurm(plan: SharingPlan) -> str:
    nodes = ",".join(plan.nodes) or "NODE"
    return f"""1. slurm.conf: GresTypes=gpu,shard; on the lines of {nodes} beside their gpu: \
shard:{plan.most * plan.boards}
2. gres.conf of these nodes: Name=shard Count={plan.most * plan.boards} ({plan.most} a board)
3. Restart slurmctld and the slurmd of {nodes}.
4. The jobs named here ask for --gres=shard:1 instead of a GPU.
Shards do not hold a job to its memory. Back: undo the lines, and ask for a GPU again."""
