"""Jobs whose GPU memory climbs towards the end of their board, as telemetry would tell."""

from dataclasses import replace
from datetime import datetime

import numpy as np
import pandas as pd
from factories import make_samples

from collectors.shared.collector import Collector
from dashboard.cycle.context import World
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store

DAYS = 3


def climbing(
    job_id: str, *, gpu_model: str, memory_mib: float, to: float = 0.93, end: datetime
) -> pd.DataFrame:
    """Three days of one board whose memory climbs evenly to a share of it."""
    minutes = DAYS * 1440
    return make_samples(
        minutes=minutes,
        job_id=job_id,
        end=end,
        gpu_model=gpu_model,
        memory_total_mib=memory_mib,
        memory_used_mib=np.linspace(0.4, to, minutes) * memory_mib,
        utilization_ratio=0.9,
    )


def free_board(*, gpu_model: str, end: datetime) -> pd.DataFrame:
    """An hour of a board that nothing uses."""
    return make_samples(
        job_id="",
        end=end,
        gpu_uuid="GPU-large",
        gpu_model=gpu_model,
        memory_used_mib=0.0,
        utilization_ratio=0.0,
    )


def world_of(store: Store, *collectors: Collector, settings: Settings | None = None) -> World:
    """A world that plans a day by the hour."""
    planning = PlanningSettings(slot_minutes=60, horizon_slots=24, budget_seconds=1)
    return World(
        settings=replace(settings or Settings(), planning=planning),
        store=store,
        collectors=collectors,
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get("DEU"),
    )
