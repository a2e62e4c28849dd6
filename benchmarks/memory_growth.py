"""How often memory that grows steadily reaches its limit in the time that the watch follows it.

`python -m benchmarks.memory_growth --data DIR`, which holds alibaba_genai_pods: the memory of pods
of inference by the minute, read in slots of five minutes as the watch reads it. Limits are drawn at
shares of a pod's own largest use, so that they are reached. An alarm is right when the limit is
reached within the hour after it; for an hour after an alarm there is no other. The rule was chosen
on every second pod, the others judge it.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.base.units import BYTES_PER_MIB, SLOT_SECONDS
from planner.memory.watch.growth import WINDOW_SLOTS, growth_towards

RESULTS = Path(__file__).parent / "results" / "memory_growth.md"
LIMITS = (0.6, 0.7, 0.8, 0.9, 0.95)
MIN_READINGS = 10
Floats = npt.NDArray[np.float64]


def pods_of(folder: Path) -> dict[str, Floats]:
    """Return the largest memory of each pod by slot, MiB, NaN where it told none."""
    rows = pd.read_parquet(folder / "alibaba_genai_pods" / "pod_gpu_timeseries.parquet")
    rows = rows.assign(
        slot=rows["t_est_real_s"] // SLOT_SECONDS,
        used=rows["gpu_mem_used_bytes"].where(rows["gpu_mem_used_bytes"] > 0) / BYTES_PER_MIB,
    )
    table = rows.pivot_table(index="slot", columns="pod", values="used", aggfunc="max")
    table = table.reindex(range(int(rows["slot"].min()), int(rows["slot"].max()) + 1))
    return {
        str(pod): table[pod].to_numpy(dtype=np.float64)
        for pod in table
        if table[pod].notna().sum() > MIN_READINGS
    }


def alarms_before(used: Floats, limit: float, reached: int) -> Iterator[int]:
    """Yield the slots before that one in which the watch tells of growth, an hour apart."""
    last = -WINDOW_SLOTS
    for slot in range(reached):
        if slot - last >= WINDOW_SLOTS and growth_towards(used[: slot + 1], limit) is not None:
            last = slot
            yield slot


def judged(pods: Mapping[str, Floats]) -> tuple[int, int, int, int]:
    """Return pods, limits that were reached, alarms, and alarms that were right."""
    crossings, alarms, right = 0, 0, 0
    for used in pods.values():
        for share in LIMITS:
            limit = share * float(np.nanmax(used))
            reached = int(np.argmax(np.nan_to_num(used) >= limit))
            first = used[np.isfinite(used)][0]
            if first >= limit:
                continue
            found = list(alarms_before(used, limit, reached))
            crossings += 1
            alarms += len(found)
            right += sum(reached - slot <= WINDOW_SLOTS for slot in found)
    return len(pods), crossings, alarms, right


def main() -> None:
    """Print the table and write it to benchmarks/results/memory_growth.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    pods = pods_of(parser.parse_args().data)
    names = sorted(pods)
    lines = [
        "`python -m benchmarks.memory_growth --data DIR`",
        "",
        "| pods | count | limits reached | alarms | right | limits foreseen |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for title, chosen in (("chosen on", names[::2]), ("judged on", names[1::2])):
        count, crossings, alarms, right = judged({name: pods[name] for name in chosen})
        lines.append(
            f"| {title} | {count} | {crossings} | {alarms} | {right} | {right / crossings:.0%} |"
        )
    print("\n".join(lines))
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
