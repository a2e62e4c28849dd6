"""A cycle finds that a service's model fits a cheaper GPU, and is silent where it cannot know."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected, make_job, make_samples

from collectors.shared.collector import Window
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from dashboard.serving.fit import FASTER_MEMORY, SLOW_END_FACTOR
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.columns import SERVING, check_frame
from data.facts.jobs import Job, SchedulerFacts
from data.records.actions import Action
from data.records.recommendations import Recommendation
from data.records.serving import ServiceOutlook
from data.settings.all_settings import PlanningSettings, Settings
from data.store import open_store
from planner.memory.estimate.bounds import FIT_PROBABILITY

PODS, DAYS = 2, 1
L40S, H100 = "L40S-48GB", "H100-SXM5-80GB"
COMMAND = "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192 --max-num-seqs 32"
TOLD = {
    "gpus_per_pod": "1", "gpus_per_unit": "1", "gpu_containers": "1", "wanted_gpus": "2",
    "engine_command": COMMAND,
}  # fmt: skip
BANDWIDTHS = {
    "B200-SXM-180GB": 8000, "H200-SXM-141GB": 4800, "H100-SXM5-80GB": 3350, "H100-PCIE-80GB": 2000,
    "A100-SXM4-80GB": 2039, "A100-PCIE-80GB": 1935, "A100-SXM4-40GB": 1555, "A30-24GB": 933,
    "V100-SXM2-32GB": 900, "V100-SXM2-16GB": 900, "L40S-48GB": 864, "A10-24GB": 600,
    "T4-16GB": 320, "L4-24GB": 300, "B300-SXM-270GB": 8000, "GB200-186GB": 8000,
    "GH200-144GB": 4900, "GH200-96GB": 4000, "H200-NVL-141GB": 4800, "H100-NVL-94GB": 3938,
    "RTX-PRO-6000-96GB": 1597, "A100-PCIE-40GB": 1555, "L40-48GB": 864, "A40-48GB": 696,
    "A10G-24GB": 600, "V100-PCIE-32GB": 900, "V100-PCIE-16GB": 900, "GB300-278GB": 8000,
    "A16-16GB": 200, "MI300X-192GB": 5300, "MI325X-256GB": 6000,
    "H800-SXM-80GB": 3350, "H800-PCIE-80GB": 2000, "H20-96GB": 4000, "A100-SXM-64GB": 1640,
    "A800-SXM4-80GB": 2039, "A800-PCIE-80GB": 1935, "A2-16GB": 200, "RTX-A6000-48GB": 768,
    "RTX-A5000-24GB": 768, "RTX-A4000-16GB": 448, "RTX-3090-24GB": 936, "RTX-3080-10GB": 760,
    "L20-48GB": 864, "RTX-6000-ADA-48GB": 960, "RTX-4090-24GB": 1008, "RTX-5090-32GB": 1792,
    "V100S-PCIE-32GB": 1134, "V100-SXM3-32GB": 981, "RTX-2080-TI-11GB": 616,
    "QUADRO-RTX-8000-48GB": 672, "QUADRO-RTX-6000-24GB": 672, "TITAN-RTX-24GB": 672,
    "P100-PCIE-16GB": 732, "P100-SXM2-16GB": 732, "P100-PCIE-12GB": 549, "P40-24GB": 346,
    "GTX-1080-TI-11GB": 484, "MI210-64GB": 1638, "MI250X-64GB": 1638, "MI250-64GB": 1638,
    "MI300A-128GB": 5300, "MI355X-288GB": 8000,
}  # fmt: skip
"""GB/s of the vendor's data sheets."""
SETTINGS = replace(
    Settings(), planning=PlanningSettings(slot_minutes=60, horizon_slots=24, budget_seconds=1)
)


ADVISED = {"chat": {}, "scaled": {"managed_by": "HorizontalPodAutoscaler"}}
SILENT = {
    "nothing is told of its engine": {"engine_command": ""},
    "no model of that name": {"engine_command": "vllm serve chat --max-model-len 8192"},
    "no context": {"engine_command": "vllm serve Qwen/Qwen2.5-7B-Instruct"},
    "too large": {"engine_command": "vllm serve meta-llama/Llama-3.1-70B --max-model-len 8192"},
    "its pods have one GPU": {"engine_command": f"{COMMAND} --tensor-parallel-size 2"},
    "a quantization that is not read": {"engine_command": f"{COMMAND} --quantization odd"},
    "its affinity": {"closed_models": L40S},
    "its template": {"gpu_containers": "2"},
    "its boards are not its own": {"sharing": "others use the same boards"},
    "who would undo it": {"managed_by": "Argo CD"},
    "protected": {},
    "how full": {},
}
"""What else is told of a service, by its name."""


class Fleet:
    """A source of services of two pods on H100 each, and of free boards of a model."""

    name = "recorded"

    def __init__(self, services: Mapping[str, Mapping[str, str]], *, free: int, model: str) -> None:
        self._services, self._free, self._model = services, free, model

    def collect(self, window: Window) -> Collected:
        """Return all of it: an engine holds nine tenths of its boards, whatever they are."""
        minutes = DAYS * 1440
        idle = make_samples(
            gpus=self._free, minutes=minutes, job_id="", utilization_ratio=0.0,
            memory_used_mib=5.0, memory_total_mib=46_068.0, gpu_model=self._model, node="node-2",
        )  # fmt: skip
        samples = [idle.assign(gpu_uuid="L40S-" + idle["gpu_uuid"])]
        for name in self._services:
            busy = make_samples(
                gpus=PODS, minutes=minutes, job_id=job_id(name), utilization_ratio=0.95,
                memory_used_mib=73_000.0,
            )  # fmt: skip
            samples.append(busy.assign(gpu_uuid=f"{name}-" + busy["gpu_uuid"]))
        jobs = tuple(job(name, told) for name, told in self._services.items())
        serving = pd.concat([served(name) for name in self._services])
        given = make_collected(pd.concat(samples), serving=serving, jobs=jobs)
        return replace(given, report=replace(given.report, window_end=window.end))


def job_id(name: str) -> str:
    """The service's job."""
    return f"search/deployment/{name.replace(' ', '-')}"


def job(name: str, told: Mapping[str, str]) -> Job:
    """A Deployment of two pods, with what is told of it beside the usual."""
    extra = {**TOLD, **told}
    managed_by = extra.pop("managed_by", "")
    facts = SchedulerFacts(
        workload=f"deployment/{name}",
        managed_by=(managed_by,) if managed_by else (),
        extra=tuple(extra.items()),
    )
    since = NOW - timedelta(days=DAYS)
    return make_job(
        job_id(name), gpu_count=PODS, gpu_model=H100, scheduler=facts, first_seen_at=since
    )


def served(name: str) -> pd.DataFrame:
    """42 requests of 4 s a minute on each of two pods, once 32 at work at once."""
    starts = pd.to_datetime(
        [NOW - timedelta(minutes=5 * slot) for slot in range(DAYS * 288, 0, -1)], utc=True
    ).as_unit("us")
    full = np.isin(np.arange(DAYS * 288), (20, 21, 22, 23))
    pods = [
        pd.DataFrame(
            {
                "slot_start": starts, "label_id": f"{job_id(name)}-{pod}", "engine": "vllm",
                "model": "chat", "address": str(pod), "finished_requests": 210.0,
                "running_requests": np.where(full, 32.0, 2.8),
                "waiting_requests": np.where(full, 1.0, 0.0),
                "kv_cache_ratio": np.nan if name == "how full" else np.where(full, 0.2, 0.02),
                "request_seconds": 840.0, "request_count": 210.0,
            }
        )
        for pod in range(PODS)
    ]  # fmt: skip
    return check_frame(pd.concat(pods, ignore_index=True), SERVING)


def advised(
    path: Path, services: Mapping[str, Mapping[str, str]], *, free: int, model: str = L40S
) -> tuple[dict[str, ServiceOutlook], dict[str, Recommendation]]:
    """The services as a cycle foresees them, and what is advised on them, by job."""
    planning = replace(SETTINGS.planning, protected_jobs=job_id("protected"))
    with open_store(f"duckdb:///{path}/t.duckdb") as store:
        world = World(
            settings=replace(SETTINGS, planning=planning), store=store,
            collectors=(Fleet(services, free=free, model=model),),
            catalogue=load_gpu_catalogue(), carbon=load_carbon_table().get("DEU"),
        )  # fmt: skip
        outcome = run_cycle(world, now=NOW)
        outlooks = {outlook.job_id: outlook for outlook in store.reader.serving_outlook()}
    rows = [row for row in outcome.recommendations if row.action is Action.MODEL_FITS]
    return outlooks, {row.job_id: row for row in rows}


def test_a_model_that_fits_a_cheaper_gpu_is_advised_and_unknown_stays_unknown(
    tmp_path: Path,
) -> None:
    """Two H100 for a model of 15 GiB, with the money on L40S, also when those are far slower.

    An autoscaler of the number of pods is no obstacle; every other service lacks one thing.
    """
    outlooks, rows = advised(tmp_path, ADVISED | SILENT, free=80)
    assert set(outlooks) == {job_id(name) for name in (*ADVISED, *SILENT)}
    assert set(rows) == {job_id(name) for name in ADVISED}
    (fit,), row = outlooks[job_id("chat")].fits, rows[job_id("chat")]
    assert (fit.gpu_model, fit.context_tokens) == (L40S, 8192)
    # A fifth of what nine tenths of an H100 leave to the cache, at 56 KiB a token of this model.
    assert fit.sequences == pytest.approx(0.2 * 54 * 2**20 / 56 / 8192, rel=0.15)
    assert fit.fit_probability >= FIT_PROBABILITY
    assert fit.p95_gib < 44
    assert fit.replicas.low == PODS
    assert fit.replicas.high > fit.replicas.central >= PODS
    assert row.savings.cost is not None
    per_day = row.savings.cost.times(24 / row.savings.horizon_hours)
    assert per_day.high == pytest.approx(24 * PODS * (2.50 - 0.90))
    assert per_day.central == pytest.approx(24 * (PODS * 2.50 - fit.replicas.central * 0.90))
    assert per_day.low == pytest.approx(24 * (PODS * 2.50 - fit.replicas.high * 0.90))
    assert 0 < per_day.low < per_day.central
    assert (row.now.gpu_model, row.proposed.gpu_model) == (H100, L40S)
    assert "more slowly" in row.why
    assert "not measured" in row.why
    assert row.change == f"{L40S} instead of {H100}"


def test_without_room_nothing_is_advised(tmp_path: Path) -> None:
    """Two replicas do not move to one free board."""
    assert advised(tmp_path, {"chat": {}}, free=1)[1] == {}


@pytest.mark.parametrize(
    ("model", "fits"), [("H100-PCIE-80GB", ["H100-PCIE-80GB"]), ("MI300X-192GB", [])]
)
def test_an_engine_stays_with_the_vendor_of_its_boards(
    tmp_path: Path, model: str, fits: list[str]
) -> None:
    """Of another the boards may be cheaper and faster: its image does not run there."""
    outlooks, _rows = advised(tmp_path, {"chat": {}}, free=80, model=model)
    assert [fit.gpu_model for fit in outlooks[job_id("chat")].fits] == fits


def test_the_doubt_of_speed_covers_what_data_sheets_say_of_bandwidth() -> None:
    """Tokens are decoded at the bandwidth of memory, which the catalogue does not have."""
    catalogue = load_gpu_catalogue()
    assert set(BANDWIDTHS) == {model.name for model in catalogue}
    for here, there in product(catalogue, catalogue):
        if there.price_per_hour < here.price_per_hour and here.name not in FASTER_MEMORY:
            slower = max(1.0, here.relative_speed / there.relative_speed) * SLOW_END_FACTOR
            assert BANDWIDTHS[here.name] / BANDWIDTHS[there.name] <= slower
