"""How often the cause of slow work is right.

`python -m benchmarks.slow_work --data DIR`. Two kinds of jobs have a known cause: programs measured
on an H200 (`benchmarks.measure_causes`), and simulated jobs, of which a cycle is asked. Thresholds
were set with one half of each in view, the other half judges. Of other real profiles no cause is
known: what they show is held against what sped them up (lucid_profiles: batch and mixed precision),
or told as it is (alibaba_genai_pods, acme).
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from benchmarks._slow_jobs import cause_of, slow_shape
from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from data.facts.columns import ACTIVITY
from data.facts.jobs import Job, Platform, WorkloadKind
from data.records.slow_work import SlowCause
from data.store import open_store
from planner.slow_work.rules import (
    LARGER_BATCH,
    MIXED_PRECISION,
    RULES,
    shown,
    signals_of,
    slow_work,
)

RESULTS = Path(__file__).parent / "results" / "slow_work.md"
MEASURED = Path(__file__).parent / "measured" / "slow_programs_h200.json"
SEEN, JUDGING = (1, 2, 3, 101, 102, 103), (201, 202, 203, 204, 205, 206)
NODES, STEP_SECONDS, HOURS = 12, 60, 6
END = datetime(2026, 1, 7, 12, tzinfo=UTC)
Counts = Counter[tuple[SlowCause, SlowCause, str]]


def simulated(seeds: Sequence[int], folder: Path) -> Counts:
    """Return (cause, said, confidence) counts of training jobs of fleets with slow jobs.

    Through collector, store and rule, as a cycle does. A job counts that runs for an hour.
    """
    counts: Counts = Counter()
    for seed in seeds:
        fleet = SimulatedFleet(seed=seed, nodes=NODES, shape_of=slow_shape)
        collector = SimulatedFleetCollector(fleet=fleet, step_seconds=STEP_SECONDS)
        window = Window(start=END - timedelta(hours=HOURS), end=END)
        with open_store(f"duckdb:///{folder}/{seed}.duckdb") as store:
            store.keep(collector.collect(window))
            activity = store.reader.job_activity(start=window.start, end=END)
            jobs = {job.job_id: job for job in store.reader.jobs(seen_since=window.start)}
        truth = dict(_truth(fleet, window))
        for found in slow_work(activity, jobs):
            if found.job_id in truth:
                counts[truth[found.job_id], found.cause, found.confidence] += 1
    return counts


def _truth(fleet: SimulatedFleet, window: Window) -> Iterator[tuple[str, SlowCause]]:
    first, last = (int(at.timestamp()) for at in (window.start, window.end))
    for tenant in fleet.tenants:
        cause = cause_of(tenant)
        for run, begins, ends in fleet.runs(tenant, first, last):
            if cause is not SlowCause.UNKNOWN and min(ends, last) - max(begins, first) >= 3600:
                yield tenant.job_id(run), cause


def confusion(counts: Counts) -> Iterator[str]:
    """Yield a table of what was said of the jobs of each cause."""
    causes = [cause for cause in SlowCause if cause is not SlowCause.UNKNOWN]
    yield f"| cause | jobs | {' | '.join(map(str, SlowCause))} | right |"
    yield f"|---|---:|{'---:|' * (len(SlowCause) + 1)}"
    for cause in causes:
        said = Counter[SlowCause]()
        for (true, named, _confidence), count in counts.items():
            said[named] += count * (true is cause)
        row = [said[it] for it in SlowCause]
        right = said[cause]
        share = f"{right / sum(row):.0%}" if sum(row) else "none"
        yield f"| {cause} | {sum(row)} | {' | '.join(map(str, row))} | {share} |"


def findings_line(counts: Counts) -> str:
    """Return how many findings there would be, and how many of them name the cause."""
    told = {
        key: count
        for key, count in counts.items()
        if key[1].is_slow and key[2] in ("medium", "strong")
    }
    right = sum(count for (true, said, _), count in told.items() if true is said)
    busy = sum(count for (true, _, _), count in told.items() if true is SlowCause.BUSY)
    return (
        f"{sum(told.values())} findings (medium or strong), {right} of them name the cause; "
        f"{busy} are of jobs that are busy."
    )


def activity_frame(**columns: object) -> pd.DataFrame:
    """Return rows as `job_activity` gives them, NaN for what is not given."""
    names = [
        name for name in ACTIVITY.names if name not in ("slot_start", "gpu_uuid", "mig_instance")
    ]
    frame = pd.DataFrame(columns)
    return frame.reindex(columns=[*frame.columns, *(n for n in names if n not in frame)]).assign(
        boards=1, behind=np.nan, spread=np.nan
    )


def measured_programs() -> pd.DataFrame:
    """Return the programs measured on an H200, with what the rule says of each.

    `saved` is the share of its time that a program spends less without its cause; `low` to `high`
    is what the rule says of it, NaN where it says nothing.
    """
    rows = pd.DataFrame(json.loads(MEASURED.read_text(encoding="utf-8"))["rows"])
    signals = signals_of(rows.assign(boards=1, behind=0.0, spread=0.0))
    found = [RULES[number] if number >= 0 else None for number in shown(signals)]
    speed = rows.set_index("name")["items_per_second"]
    stated = [
        [np.nan] * 3
        if rule is None or rule.lost is None
        else [float(signals[rule.lost[0]][place]) * part for part in rule.lost[1:]]
        for place, rule in enumerate(found)
    ]
    return rows.assign(
        said=[SlowCause.UNKNOWN if rule is None else rule.cause for rule in found],
        strength=["" if rule is None else rule.strength for rule in found],
        saved=1 - rows["items_per_second"] / rows["fixed_by"].map(speed),
    ).join(pd.DataFrame(stated, columns=["low", "central", "high"]))


def measured(rows: pd.DataFrame) -> Iterator[str]:
    """Yield what the rule says of programs measured on an H200."""
    yield (
        "| program | cause | said | engine | SM | tensor | DRAM | FP32 | time lost, as said "
        "| measured |"
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for row in rows.to_dict("records"):
        names = ("engine", "sm", "tensor", "dram", "fp32")
        shares = [
            "" if np.isnan(share := row[f"{name}_active"]) else f"{share:.3f}" for name in names
        ]
        lost = [row["low"], row["central"], row["high"]]
        told = "" if np.isnan(lost[0]) else f"{lost[1]:.2f} ({lost[0]:.2f}–{lost[2]:.2f})"
        saved = "" if np.isnan(row["saved"]) else f"{row['saved']:.2f}"
        cause = "none of these" if row["cause"] == SlowCause.UNKNOWN else row["cause"]
        yield (
            " | ".join(
                (
                    f"| {row['name']} | {cause} | {row['said']} {row['strength']}".rstrip(),
                    *shares,
                    told,
                )
            )
            + f" | {saved} |"
        )
    known = rows[rows["cause"] != SlowCause.UNKNOWN]
    right = known["cause"] == known["said"]
    slow = known[known["saved"].notna() & known["low"].notna()]
    inside = (slow["low"] <= slow["saved"]) & (slow["saved"] <= slow["high"])
    others = rows[rows["cause"] == SlowCause.UNKNOWN]
    slow_said = others["said"].map(lambda cause: SlowCause(cause).is_slow)
    wrongly = slow_said & (others["strength"] != "weak")
    yield ""
    yield (
        f"{int(right.sum())} of {len(known)} right; {int(wrongly.sum())} of {len(others)} programs "
        f"with none of these causes would be a finding; the time lost lies in the stated range for "
        f"{int(inside.sum())} of {len(slow)}."
    )


def lucid(folder: Path) -> Iterator[str]:
    """Yield what the rule says of measured jobs, and what a larger batch or mixed precision did."""
    rows = pd.read_csv(folder / "single_job_profiles.csv")
    signals = signals_of(activity_frame(engine_active=rows["gpu_util"] / 100))
    rows = rows.assign(starved=shown(signals) >= 0)
    key = ["model", "dataset"]
    twice = rows.assign(batchsize=rows["batchsize"] / 2)
    grown = rows.merge(twice, on=[*key, "batchsize", "amp"], suffixes=("", "_twice"))
    grown = grown.assign(gain=grown["speed_twice"] / grown["speed"])
    mixed = rows[rows["amp"] == 0].merge(
        rows[rows["amp"] == 1], on=[*key, "batchsize"], suffixes=("", "_mixed")
    )
    mixed = mixed.assign(gain=mixed["speed_mixed"] / mixed["speed"])
    yield (
        f"{len(rows)} profiles; GPU utilization alone, so that only *starved of input* can show, "
        f"and weak: {int(rows['starved'].sum())} do."
    )
    yield ""
    yield "| what was changed | profiles | faster by a fifth or more | speed, median |"
    yield "|---|---:|---:|---:|"
    for title, part in (
        ("batch doubled, of those shown starved", grown[grown["starved"]]),
        ("batch doubled, of the others", grown[~grown["starved"]]),
        ("mixed precision, of those shown starved", mixed[mixed["starved"]]),
        ("mixed precision, of those at 80 % or more", mixed[mixed["gpu_util"] >= 80]),
    ):
        yield (
            f"| {title} | {len(part)} | {int((part['gain'] >= 1.2).sum())} | "
            f"{part['gain'].median():.2f} |"
        )
    saved = (1 - 1 / mixed.loc[mixed["gpu_util"] >= 80, "gain"]).clip(lower=0)
    twice_saved = (1 - 1 / grown.loc[grown["starved"], "gain"]).quantile([0.25, 0.5]).tolist()
    programs = measured_programs()
    own = programs.loc[programs["said"] == SlowCause.NO_TENSOR, "saved"].fillna(0.0)
    quartiles = _figures(saved.quantile([0.25, 0.5, 0.75]).tolist())
    pooled = pd.concat([saved, own]).quantile([0.0, 0.5, 1.0]).tolist()
    yield ""
    yield (
        f"Time that mixed precision saved, least, median and most: {_figures(pooled)}, of these "
        f"profiles at 80 % or more ({quartiles}, quartiles; some "
        "may have used tensor cores in single precision too, TF32) and of the programs above whose "
        f"tensor cores were unused, 0 where they have no matrix products. The rule states "
        f"{_figures(MIXED_PRECISION)}. Time that twice the batch saved of those shown starved, "
        f"quartile and median: {_figures(twice_saved)}; the rule states {_figures(LARGER_BATCH)}, "
        "the last from the programs above. A job that is short of work for its GPU was most often "
        "helped by a larger batch here, which GPU utilization cannot tell from input that comes "
        "late: without SM activity this is weak, and no finding."
    )


def _figures(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def alibaba(folder: Path) -> Iterator[str]:
    """Yield what the rule says of pods of a service: their kind unknown, then known."""
    rows = pd.read_parquet(folder / "pod_gpu_timeseries.parquet")
    slots = rows.assign(slot=rows["t_est_real_s"] // 300).groupby(["pod", "slot"])["gpu_util_pct"]
    means = slots.mean().reset_index()
    frame = activity_frame(job_id=means["pod"], engine_active=means["gpu_util_pct"] / 100)
    yield "| the kind of the pods | pods | said | findings |"
    yield "|---|---:|---|---:|"
    for kind in (WorkloadKind.UNKNOWN, WorkloadKind.INFERENCE):
        jobs = {str(pod): _pod(str(pod), kind) for pod in means["pod"].unique()}
        found = slow_work(frame, jobs)
        said = Counter(f"{entry.cause} {entry.confidence}".strip() for entry in found)
        findings = sum(entry.cause.is_slow and entry.confidence != "weak" for entry in found)
        told = ", ".join(f"{count} {what}" for what, count in said.most_common())
        yield f"| {kind} | {len(found)} | {told} | {findings} |"


def _pod(name: str, kind: WorkloadKind) -> Job:
    return Job(
        job_id=name, name=name, namespace="", owner="", platform=Platform.KUBERNETES, kind=kind,
        gpu_model="unknown", gpu_count=1, mig_profile="", gpu_memory_mib=None,
        first_seen_at=END, last_seen_at=END, source="alibaba_genai_pods",
    )  # fmt: skip


def acme(folder: Path) -> Iterator[str]:
    """Yield how often a real cluster's readings lie beyond thresholds of the rule."""
    rows = pd.read_parquet(folder / "acme_metric_quantiles_seren_philly.parquet")
    curves = {
        name: part["value"].to_numpy() / 100
        for name, part in rows[rows["cluster"] == "seren"].groupby("metric")
    }
    util, active = curves["gpu_util"], curves["sm_active"]
    at_work, filled = float(np.mean(util >= 0.8)), float(np.mean(active > 0.5))
    yield (
        f"Seren: GPU utilization is 80 % or more in {at_work:.0%} of readings, SM activity above "
        f"50 % in {filled:.0%}. So a kernel runs while half of the SMs have no work in at least "
        f"{max(0.0, at_work - filled):.0%} of readings. These are curves of single readings: they "
        "tell no job, so no cause can be counted."
    )


def section(title: str, folder: Path, lines: Callable[[Path], Iterator[str]]) -> Iterator[str]:
    """Yield what a set of real profiles says, or that it is not there."""
    yield from ("", f"## {title}", "")
    if folder.is_dir():
        yield from lines(folder)
    else:
        yield f"Not there: {folder.name} is missing from the folder of --data."


def report(data: Path, folder: Path) -> Iterator[str]:
    """Yield the whole report."""
    yield from (
        "`python -m benchmarks.slow_work --data DIR`",
        "",
        "## Programs of known cause on one H200",
        "",
        (
            "Single-GPU training, and programs without matrix products, read as the NVML source "
            "does (GPM) and judged as one slot each. Thresholds were set by the first table: small "
            "kernels are a small batch also where they come late, and tensor activity up to 0.05 "
            "counts as none. The second has other models; of it that FP32 activity tells work "
            "without matrix products apart, and the upper ends of the time lost, were seen."
        ),
    )
    programs = measured_programs()
    for title, name in (("Seen", "seen"), ("Judging", "judging")):
        yield from ("", f"{title}:", "")
        yield from measured(programs[programs["set"] == name])
    yield from ("", "## Simulated jobs of known cause")
    yield ""
    yield (
        f"Training jobs of fleets of {NODES} nodes that run for an hour or more of {HOURS} h; L40S "
        "boards tell GPU_UTIL alone. All rests on what the simulated fleet says that causes look "
        "like: it shows that the rule does what it states, not how often it is right elsewhere."
    )
    for title, seeds in (("seen while the thresholds were set", SEEN), ("judging", JUDGING)):
        counts = simulated(seeds, folder)
        yield from ("", f"Seeds {', '.join(map(str, seeds))}, {title}:", "")
        yield from confusion(counts)
        yield from ("", findings_line(counts))
    real = {
        "lucid_profiles": ("Lucid: measured profiles of single jobs", lucid),
        "alibaba_genai_pods": ("Alibaba GenTD26: pods of a service", alibaba),
        "acme": ("Acme: readings of a cluster", acme),
    }
    for name, (title, lines) in real.items():
        yield from section(title, data / name, lines)


def main() -> None:
    """Print the report and write it to benchmarks/results/slow_work.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data = parser.parse_args().data
    with TemporaryDirectory() as folder:
        lines = list(report(data, Path(folder)))
    print("\n".join(lines))
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
