"""The cluster on which Sia was evaluated."""

from benchmarks.simulation.workload import GpuPool, WorkloadCluster

PAPER_CLUSTER = WorkloadCluster(
    pools=(
        GpuPool(gpu_type="aws", nodes=6, gpus_per_node=4, memory_gib=15.0),
        GpuPool(gpu_type="dgx-ext", nodes=2, gpus_per_node=8, memory_gib=39.5),
        GpuPool(gpu_type="rtx", nodes=3, gpus_per_node=8, memory_gib=10.7),
    )
)
"""The heterogeneous cluster of Sia's evaluation: 24 T4, 16 A100-40, 24 RTX 2080 Ti."""
