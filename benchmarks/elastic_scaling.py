"""Speed-up of twice the boards: what `growth_gain.DOUBLING` and its docstring rest on.

`python -m benchmarks.elastic_scaling --data DIR`, which holds sia_pollux (Sia, SOSP 2023). Each
program on each kind of node is doubled from every number of GPUs that was measured, once with the
batch of each board kept and once with that of all boards; counted is the median over batches.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

_LEVELS = (np.arange(10) + 0.5) / 10
_SHOWN = (0.1, 0.5, 0.9)


def doublings(placements: pd.DataFrame, *, keeps_each: bool) -> "pd.Series[float]":
    """Return median speed-ups of twice the GPUs by (program, kind of node, GPUs).

    `placements` has application, cluster, placement ('44': four GPUs on each of two nodes),
    local_bsz and step_time; steps between two measured batches are read off the line.
    """
    gpus = placements["placement"].astype(str).map(lambda text: sum(map(int, text)))
    steps = placements.assign(gpus=gpus).groupby(["application", "cluster", "gpus", "local_bsz"])
    medians = steps["step_time"].median().reset_index()
    found = []
    for (program, kind), rows in medians.groupby(["application", "cluster"]):
        by_size = {
            size: own.set_index("local_bsz")["step_time"] for size, own in rows.groupby("gpus")
        }
        for size in set(by_size) & {other // 2 for other in by_size if other % 2 == 0}:
            there = by_size[2 * size]
            for batch, seconds in by_size[size].items():
                wanted = batch if keeps_each else batch / 2
                if there.index[0] <= wanted <= there.index[-1]:
                    then = np.interp(wanted, there.index, there)
                    found.append((program, kind, size, (2 if keeps_each else 1) * seconds / then))
    frame = pd.DataFrame(found, columns=["program", "kind", "gpus", "speed_up"])
    return frame.groupby(["program", "kind", "gpus"])["speed_up"].median()


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    placements = pd.read_parquet(parser.parse_args().data / "sia_pollux" / "placements.parquet")
    for keeps_each in (True, False):
        found = doublings(placements, keeps_each=keeps_each)
        kept = "each board" if keeps_each else "all boards together"
        shown = ", ".join(f"{found.quantile(level):.2f}" for level in _SHOWN)
        print(f"batch of {kept} kept: q10, median, q90 {shown} of {len(found)} medians")
        print([round(float(found.quantile(level)), 2) for level in _LEVELS])
        print(found.groupby(level=0).quantile(0.5).round(2).to_dict())
        inside = []
        for _program, own in found.groupby(level=0):
            low, high = found.drop(own.index).quantile([0.1, 0.9])
            inside.append(float(own.between(low, high).mean()))
        print(f"within q10 to q90 of the other four programs: {np.mean(inside):.0%} of a program's")


if __name__ == "__main__":
    main()
