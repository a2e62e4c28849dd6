"""One click in the browser changes a job of a real Slurm, is read back, and one click undoes it."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_apply import GPU_MODELS, MODEL, proposal
from beds.slurm_files import BedNode
from browser.bed import Visitor, running_server
from browser.inbox import answer, open_row
from factories import make_collected, make_job, make_plan, make_samples
from playwright.sync_api import expect

from data.base.clock import utc_now
from data.facts.jobs import Platform
from data.store import open_store

pytestmark = [pytest.mark.browser, pytest.mark.slurm, pytest.mark.usefixtures("machine_time")]


def waiting_job(bed: SlurmBed) -> str:
    """A job that waits for four GPUs while another holds all."""
    bed.submit("--gres=gpu:h100:4", "-J", "holder")
    bed.until("the holder runs", lambda: "RUNNING" in bed.states().values())
    job = bed.submit("--gres=gpu:h100:4", "-J", "waiter")
    bed.until("it waits", lambda: bed.run("squeue", "-h", "-j", job, "-o", "%r") != "None")
    return job


def store_with_advice(url: str, job: str) -> None:
    """A store that advises two GPUs instead of four."""
    now = utc_now()
    advice = replace(
        proposal(job, 4, 2, expires_at=now + timedelta(days=1)),
        plan_id=make_plan().plan_id,
        namespace="gpu",
        created_at=now,
    )
    known = make_job(
        f"slurm:{job}", namespace="gpu", platform=Platform.SLURM, gpu_model=MODEL, gpu_count=4
    )
    with open_store(url) as store:
        store.keep(make_collected(make_samples(job_id=known.job_id, end=now, gpus=4), (known,)))
        store.keep_cycle(
            cycle_id="c1",
            started_at=now,
            finished_at=now,
            forecasts=(),
            plan=make_plan(),
            recommendations=(advice,),
        )


def gres_of(bed: SlurmBed, job: str) -> str:
    """What the job asks for now."""
    found = re.search(r"TresPerNode=\S*?(gpu\S+)", bed.run("scontrol", "show", "job", job))
    return found.group(1) if found else ""


def test_one_click_changes_a_real_job_and_one_click_undoes_it(
    empty_store: str, own_port: int, visitor: Visitor, tmp_path: Path
) -> None:
    """Approve and apply; the page shows the state that Slurm was read back in; roll back."""
    # Without a node that has no GPU, or without features, the bed writes no valid slurm.conf.
    nodes = (
        BedNode(name="h1", gpu_type="h100", gpus=4, features="nvlink"),
        BedNode(name="c1", features="cpuonly"),
    )
    with running_slurm(nodes=nodes) as bed:
        job = waiting_job(bed)
        store_with_advice(empty_store, job)
        with running_server(
            empty_store,
            tmp_path,
            port=own_port,
            TRIMTAB_APPLY_ENABLED="true",
            TRIMTAB_APPLY_SLURM_ENABLED="true",
            TRIMTAB_SLURM_CONF_FILE=str(bed.conf),
            TRIMTAB_SLURM_GPU_MODELS=GPU_MODELS,
            TRIMTAB_APPLY_STOP_FILE=str(tmp_path / "STOP"),
            TRIMTAB_APPLY_MAX_NAMESPACE_SHARE_RATIO="1",
        ) as server:
            visitor.open(f"{server.base}/findings")
            panel, _reference = open_row(visitor, f"slurm:{job}")
            panel.get_by_role("button", name="Approve and apply").click()
            answer(visitor, name="Robin", clicks=2)
            bed.until("the job asks for two", lambda: gres_of(bed, job) == "gpu:h100:2")
            expect(panel.get_by_text("applied by Robin")).to_be_visible()
            panel.get_by_role("button", name="Roll back").click()
            bed.until("the job asks for four again", lambda: gres_of(bed, job) == "gpu:h100:4")
        with open_store(empty_store, create=False) as store:
            commands = [str(asked.command.kind) for asked in store.reader.commands()]
            assert commands == ["apply", "rollback"]
            assert store.reader.verify_audit() == ()
