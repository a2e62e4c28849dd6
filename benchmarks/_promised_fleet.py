"""Drawn fleets with a hidden truth: what jobs would do, and what boards and sites really draw.

Every fleet is drawn from its own generator, so that one fleet does not depend on another. What is
hidden is drawn around what the product assumes or could measure:

* a free board of a model draws idle power whose q10, q50 and q90 are the catalogue's low, central
  and high; boards differ by 3 %, and a process that holds one adds 0-25 %;
* work of activity u draws (top TDP - idle) u^g, top 0.6-0.95 and g lognormal around 1 (sigma 0.15)
  by job, around 0.4 for some that are hot at little activity; other boards do it with another 10 %
  (q10-q90) of power and speed;
* demand is level x day x weekend x trend x lognormal AR(1) noise x bursts, by job;
* PUE is normal around the setting, with its half-width as q10-q90; it and what servers draw are
  drawn anew for each future of a fleet, since no reading tells them;
* a change takes seconds, a cap slows and a server draws as the priors' low, central and high say,
  taken as q10, q50 and q90; of the worst slowdown of training on fewer boards a Beta(0.4, 1.6);
* ended runs of a job are lognormal (sigma 0.3), and so is the present one, which is found at any
  time of it, so that long ones are found more often; of jobs with a time limit
  alone half run into it and the others end at any time before, a quarter of the jobs never tell.
  Each future of a fleet draws ends anew by this law, of runs that took longer than so far.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtr, ndtri  # type: ignore[import-untyped]

from benchmarks._complete_report import complete_report
from collectors.shared.collector import Window
from data.catalogue.gpu_catalogue import GpuModel, load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.columns import SAMPLES, check_frame
from data.facts.fleet import Node, SourceReport
from data.facts.jobs import Job

Values = npt.NDArray[np.float64]
STEP = 300
PER_DAY = 86_400 // STEP
PER_HOUR = 3_600 // STEP
RUN_SPREAD = 0.3
"""Sigma of the log of how long runs of the same job take."""
NOW = datetime(2026, 1, 15, 9, tzinfo=UTC)
"""The start of the first slot; the newest reading is one step before."""

SHAPES: dict[str, tuple[str, tuple[str, ...], int]] = {
    "services, H100 and A100": ("kubernetes", ("H100-SXM5-80GB", "A100-SXM4-80GB"), 8),
    "services, boards of 75 W": ("kubernetes", ("L4-24GB", "T4-16GB", "A10-24GB"), 4),
    "services, MIG": ("kubernetes", ("A100-SXM4-80GB",), 8),
    "training, Slurm": ("slurm", ("H100-SXM5-80GB", "A100-SXM4-80GB", "V100-SXM2-32GB"), 8),
    "mixed, L40S and A100": ("kubernetes", ("L40S-48GB", "A100-SXM4-80GB"), 8),
    "services near their limit": ("kubernetes", ("A100-SXM4-80GB", "L40S-48GB"), 8),
}
"""Scheduler, GPU models and boards per node."""
MIXED = 42
"""So many fleets take all shapes but the last in turn; those after them have the last one, so that
power caps are proposed often enough to be judged."""


def shape_of(number: int) -> str:
    """Return the shape of a fleet by its number."""
    *shapes, last = SHAPES
    return shapes[number % len(shapes)] if number < MIXED else last


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLaw:
    """When a job ends, in steps: of runs around `typical`, by a limit in `left`, or never (0)."""

    so_far: int = 0
    typical: float = 0.0
    left: int = 0

    def drawn(self, random: np.random.Generator) -> tuple[int, bool] | None:
        """Return in how many steps the job ends, and whether its limit ends it; None for never.

        A run that is found at any time of it is as long as any run that is longer than so far.
        """
        if self.left:
            killed = bool(random.random() < 0.5)
            return max(1, self.left if killed else int(random.uniform(0, self.left))), killed
        if not self.typical:
            return None
        passed = float(ndtr(np.log(max(1, self.so_far) / self.typical) / RUN_SPREAD))
        level = passed + (1 - passed) * float(random.random())
        length = self.typical * np.exp(RUN_SPREAD * float(ndtri(min(level, 1 - 1e-12))))
        return max(1, int(length) - self.so_far), False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnJob:
    """A job with its truth. `wanted` [steps] is its work in boards, past and future.

    `ends` is the step of its end, beyond the last one for none; `killed`: its limit ends it, so
    that what it did not do is lost; `end_law` is what both are drawn by. `chance` are numbers 0..1
    for whatever a change depends on.
    """

    job: Job
    role: str
    boards: tuple[tuple[str, int], ...]
    wanted: Values
    ends: int
    killed: bool
    end_law: EndLaw
    held_idle: float
    top: float
    exponent: float
    memory: Values
    chance: Values

    def work_watts(self, model: GpuModel, activity: Values) -> Values:
        """Return what work of an activity 0..1 draws on a board, beyond idle."""
        span = self.top * model.tdp_watts - model.idle_watts
        return np.asarray(span * np.clip(activity, 0, 1) ** self.exponent)

    def ending_anew(self, past: int, random: np.random.Generator) -> "DrawnJob":
        """Return the job with another end that fits what is known of it after `past` steps."""
        end = self.end_law.drawn(random)
        return self if end is None else replace(self, ends=past + end[0], killed=end[1])

    def alive(self) -> Values:
        """Return 1 while the job is there, 0 after, [steps]."""
        return (np.arange(len(self.wanted)) < self.ends).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What no reading tells: PUE, and what servers draw without boards over what is assumed."""

    pue: float
    base_watts_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFleet:
    """A fleet as a source of its past; `past` steps come before `NOW`."""

    number: int
    shape: str
    slot_minutes: int
    past: int
    future: int
    jobs: tuple[DrawnJob, ...]
    runs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    idle_watts: dict[str, float]
    site: Site
    noise_seed: int

    @property
    def name(self) -> str:
        """The name of the source."""
        return f"{SHAPES[self.shape][0]} drawn"

    def collect(self, window: Window) -> Collected:
        """Return the readings up to the newest one."""
        samples = self.samples(0, self.past)
        return Collected(
            batch_id=f"drawn-{self.number}",
            samples=samples,
            jobs=(*(drawn.job for drawn in self.jobs), *self.runs),
            nodes=self.nodes,
            report=self.report(len(samples), window.start, window.end),
        )

    def job(self, job_id: str) -> DrawnJob:
        """Return the job of that id."""
        return next(drawn for drawn in self.jobs if drawn.job.job_id == job_id)

    def report(self, rows: int, start: datetime, end: datetime) -> SourceReport:
        """Return the report of a complete answer."""
        return complete_report(self.name, rows, start=start, end=end)

    def samples(self, first: int, last: int) -> pd.DataFrame:
        """Return the readings (columns SAMPLES) of steps [first, last) as they are unchanged."""
        random = np.random.default_rng([self.noise_seed, first])
        stamps = self.stamps(first, last)
        holder = {place: job for job in self.jobs for place in job.boards}
        parts = []
        for node in self.nodes:
            model = load_gpu_catalogue().get(node.gpu_model)
            for index in range(node.gpu_count):
                holds = holder.get((node.name, index))
                parts.append(self._board(holds, node, model, index, first, last, random))
        frame = pd.concat([part.assign(sampled_at=stamps) for part in parts], ignore_index=True)
        return check_frame(frame[list(SAMPLES.names)], SAMPLES)

    def stamps(self, first: int, last: int) -> pd.DatetimeIndex:
        """Return the times of steps [first, last)."""
        start = NOW - timedelta(seconds=self.past * STEP)
        seconds = start.timestamp() + STEP * np.arange(first, last)
        return pd.to_datetime(seconds.astype(np.int64), unit="s", utc=True).as_unit("us")

    def _board(
        self,
        holder: DrawnJob | None,
        node: Node,
        model: GpuModel,
        index: int,
        first: int,
        last: int,
        random: np.random.Generator,
    ) -> pd.DataFrame:
        count, free = last - first, self.idle_watts[model.name]
        used, memory, label, watts = (
            np.zeros(count),
            np.full(count, 0.004),
            "",
            np.full(count, free),
        )
        if holder is not None:
            there = holder.alive()[first:last] > 0
            share = np.minimum(holder.wanted[first:last] / holder.job.gpu_count, 1.0)
            used = np.clip(share * (1 + 0.03 * random.standard_normal(count)), 0, 1) * there
            watts = np.where(there, free * holder.held_idle + holder.work_watts(model, used), free)
            memory = np.where(there, holder.memory[first:last], 0.004)
            label = np.where(there, holder.job.job_id, "")
        unlike = 1 + 0.03 * np.random.default_rng([self.noise_seed, index]).standard_normal()
        return pd.DataFrame(
            {
                "gpu_uuid": f"GPU-{self.number:04d}-{node.name}-{index}",
                "mig_instance": "",
                "mig_profile": "",
                "node": node.name,
                "gpu_index": str(index),
                "gpu_model": model.name,
                "job_id": pd.Series(label, index=range(count), dtype="str"),
                "utilization_ratio": used,
                "utilization_signal": "sm_active",
                "memory_used_mib": np.round(memory * model.memory_mib),
                "memory_total_mib": float(model.memory_mib),
                "power_watts": watts * unlike * (1 + 0.01 * random.standard_normal(count)),
                "power_limit_watts": model.tdp_watts,
                "energy_joules": np.full(count, np.nan),
            }
        )
