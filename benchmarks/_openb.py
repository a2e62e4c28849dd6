"""The openb nodes and pods (Alibaba gpu-v2023) as arrays, and arrivals up to a demand."""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._fragmentation import ANY_MODEL, Pods, node_state
from benchmarks._fragmentation_kernel import NodeState
from benchmarks.packing.temporal_instance import Ints


def openb_nodes(folder: Path) -> tuple[NodeState, dict[str, int]]:
    """Return the nodes by name, and the number of every GPU model."""
    frame = pd.read_csv(folder / "openb_node_list_all_node.csv").sort_values("sn")
    names = frame["model"].fillna("none")
    models = {name: number for number, name in enumerate(sorted(names.unique()))}
    nodes = node_state(
        frame["cpu_milli"].to_numpy(),
        frame["memory_mib"].to_numpy(),
        frame["gpu"].to_numpy(),
        names.map(models).to_numpy(),
    )
    return nodes, models


def openb_pods(path: Path, models: dict[str, int]) -> Pods:
    """Return the pods of a workload variant."""
    frame = pd.read_parquet(path)
    spec = frame["gpu_spec"] if "gpu_spec" in frame else pd.Series(None, index=frame.index)
    masks = [
        sum(1 << models[name] for name in entry.split("|"))
        if isinstance(entry, str) and entry
        else ANY_MODEL
        for entry in spec
    ]
    gpus = frame["num_gpu"].to_numpy()
    return Pods(
        cpu=frame["cpu_milli"].to_numpy(),
        memory=frame["memory_mib"].to_numpy(),
        gpus=gpus,
        milli=np.where(gpus == 1, frame["gpu_milli"].to_numpy(), np.where(gpus > 1, 1000, 0)),
        models=np.array(masks, dtype=np.int64),
    )


def arrivals(pods: Pods, capacity: int, *, seed: int, load: float = 1.3) -> Ints:
    """Return pods in the order of arrival until their GPU demand reaches load x capacity.

    All pods once in random order, then random ones, as the FGD authors do.
    """
    rng = np.random.default_rng(seed)
    order = [rng.permutation(len(pods.cpu))]
    total = pods.demand.sum()
    while total < load * capacity:
        more = rng.integers(0, len(pods.cpu), 1000)
        order.append(more)
        total += pods.demand[more].sum()
    every = np.concatenate(order)
    enough = np.searchsorted(np.cumsum(pods.demand[every]), load * capacity) + 1
    return every[:enough]
