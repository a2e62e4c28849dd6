"""What is recommended for drawn Slurm jobs is what the Slurm applier takes, in recorded answers.

The records are a recorded job with other sizes, in the words of each release: the collector reads
them, and the applier's look, change and rehearsal of the same answers are the oracle.
"""

import copy
import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beds.slurm_apply import GPU_MODELS
from beds.slurm_replay import NOW, RECORDED, RELEASES, command_folder
from fleet_cases import gpu
from planning_cases import A100, AS_OF, FREE_NODES, H100, case

from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector
from dashboard.apply.slurm.change.applier import SlurmApplier
from dashboard.cycle.make_problem import fleet_rules
from data.base.errors import ApplyError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.actions import Action
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.apply import SlurmApplySettings
from data.settings.energy import EnergySettings
from data.settings.load import load_settings
from data.settings.sources import SlurmSettings
from planner.advise import advise
from planner.plan import build_plan

TYPES = {"h100": H100, "a100": A100}
PRICES = ",".join(["9"] * 12 + ["1"] * 12)
PER = ("node", "node", "job", "task", "socket")


def number(value: int, release: str) -> Any:
    """A number as the release writes it."""
    return value if release == "22.05" else {"infinite": False, "number": value, "set": True}


def recorded(release: str, name: str) -> Any:
    """A recorded document."""
    return json.loads((RECORDED / release / name).read_text(encoding="utf-8"))


def drawn(seed: int, release: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[Any]]:
    """Records of nodes and of running jobs, and the boards as telemetry sees them."""
    rng = np.random.default_rng(seed)
    job_like = next(
        job for job in recorded(release, "squeue.json")["jobs"] if "RUNNING" in job["job_state"]
        and job.get("gres_detail")
    )  # fmt: skip
    node_like = next(node for node in recorded(release, "nodes.json")["nodes"] if node["gres"])
    prefix = "gres:" if release == "22.05" else "gres/"
    nodes, jobs, boards = [], [], []
    free: list[tuple[str, str, int]] = []
    for index in range(6):
        name, kind = f"n{index}", ("h100", "a100")[index % 2]
        nodes.append(copy.deepcopy(node_like) | {
            "name": name, "gres": f"gpu:{kind}:8", "partitions": ["gpu"], "cpus": 64,
            "gres_used": f"gpu:{kind}:0",
        })  # fmt: skip
        free.append((name, kind, 8))
    for index in range(8):
        wide, each = int(rng.choice([1, 1, 2])), int(rng.choice([1, 2, 4]))
        kind = str(rng.choice(["h100", "a100"]))
        homes = [pair for pair in free if pair[1] == kind and pair[2] >= each][:wide]
        if len(homes) < wide:
            continue
        raw = 100 + index
        per, total = str(rng.choice(PER)), wide * each
        asked = {"node": each, "job": total, "task": each, "socket": each}[per]
        typed = f"{kind}:" if rng.random() < 0.7 else ""
        held = []
        for name, _kind, left in homes:
            first = 8 - left
            held.append(f"gpu:{kind}:{each}(IDX:{first}-{first + each - 1})")
            boards += [
                gpu(name, first + position, TYPES[kind], f"slurm:{raw}") for position in range(each)
            ]
            free[[pair[0] for pair in free].index(name)] = (name, kind, left - each)
        special = rng.random()
        jobs.append(copy.deepcopy(job_like) | {
            "job_id": raw, "name": f"j{raw}", "nodes": ",".join(home[0] for home in homes),
            "node_count": number(wide, release), "max_nodes": number(0, release),
            "tasks": number(wide, release), "cpus": number(wide, release),
            "gres_detail": held, "restart_cnt": 0, "partition": "gpu", "features": "",
            "requeue": bool(rng.random() < 0.8), "batch_flag": bool(rng.random() < 0.9),
            "het_job_id": number(raw if special < 0.1 else 0, release),
            "array_job_id": number(raw if 0.1 < special < 0.2 else 0, release),
            "array_task_id": number(3, release) if 0.1 < special < 0.2 else
            (None if release == "22.05" else {"infinite": False, "number": 0, "set": False}),
            **{f"tres_per_{text}": f"{prefix}gpu:{typed}{asked}" if text == per else ""
               for text in ("node", "job", "task", "socket")},
            "tres_alloc_str": f"cpu={wide},node={wide},gres/gpu={total},gres/gpu:{kind}={total}",
            "tres_req_str": f"cpu={wide},node={wide},gres/gpu={total}",
        })  # fmt: skip
    for name, kind, left in free:
        boards += [gpu(name, 8 - 1 - position, TYPES[kind]) for position in range(left)]
    return nodes, jobs, boards


def commands(folder: Path, release: str, nodes: list[Any], jobs: list[Any]) -> Path:
    """Programs that print these records in the frame of a release."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, key, records in (("squeue.json", "jobs", jobs), ("nodes.json", "nodes", nodes)):
        document = recorded(release, name) | {key: records}
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    there = RECORDED / release
    return command_folder(
        folder,
        squeue=f"cat '{folder}/squeue.json'",
        sinfo=f"cat '{folder}/nodes.json'",
        scontrol=f"case \"$*\" in *config*) cat '{there}/config.txt';; "
        f"*) cat '{folder}/nodes.json';; esac",
        sacct="true",
    )


def tried(
    folder: Path, seed: int, release: str, slot_minutes: int, *, requeue: bool
) -> tuple[Counter[str], list[str]]:
    """The actions that the applier covers, and what it refuses."""
    nodes, jobs, boards = drawn(seed, release)
    programs = commands(folder / f"{release}-{seed}", release, nodes, jobs)
    source = SlurmSettings(mode="commands", bin_directory=str(programs), gpu_models=GPU_MODELS)
    found = slurm_collector(source, load_gpu_catalogue()).collect(
        Window(start=AS_OF - timedelta(hours=1), end=AS_OF)
    )
    rng = np.random.default_rng([seed, 1])
    cases = [
        (job, float(rng.choice([0.0, 0.05, 0.2, 0.4, 0.8])), 5_000.0, 200.0 * job.gpu_count)
        for job in found.jobs
    ]
    problem = case(
        *cases,
        gpus=boards,
        nodes=found.nodes,
        planning=PlanningSettings(
            slot_minutes=slot_minutes,
            horizon_slots=24 * 60 // slot_minutes,
            shift_slack_hours=4.0,
        ),
        energy=EnergySettings(region="DEU", electricity_price_by_hour=PRICES),
        rules=replace(FREE_NODES, may_requeue=requeue),
    )
    plan = build_plan(problem, budget_seconds=30, created_at=NOW)
    settings = SlurmApplySettings(enabled=True, allow_requeue=requeue)
    applier = SlurmApplier(settings, source=source, clock=lambda: NOW)
    asked: Counter[str] = Counter()
    refused = []
    for recommendation in advise(plan, problem).recommendations:
        assert recommendation.action is not Action.MIG_SLICE, "no node of the site offers a slice"
        if applier.covers(recommendation):
            asked[recommendation.action] += 1
            why = refusal_of(applier, recommendation)
            if why:
                change = f"{recommendation.now.describe()} -> {recommendation.summary}"
                refused.append(f"{release} seed {seed}: {recommendation.target} {change}: {why}")
    return asked, refused


def refusal_of(applier: SlurmApplier, one: Recommendation) -> str:
    """Why the applier does not take a recommendation, '' when it does."""
    try:
        change = applier.change_for(one, applier.look(one, job=None, gpus=()))
        return "; ".join(applier.rehearse(change).refusals)
    except ApplyError as refusal:
        return str(refusal)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("requeue", [True, False])
@pytest.mark.parametrize(("slot_minutes", "seeds"), [(60, 8), (30, 3), (15, 3), (5, 1)])
def test_the_applier_takes_what_is_offered(
    tmp_path: Path, release: str, slot_minutes: int, seeds: int, requeue: bool
) -> None:
    """At least 19 of 20, whether it may requeue or not; what is refused is named with its seed."""
    asked: Counter[str] = Counter()
    refused: list[str] = []
    for seed in range(100 * slot_minutes, 100 * slot_minutes + seeds):
        counted, more = tried(tmp_path, seed, release, slot_minutes, requeue=requeue)
        asked += counted
        refused += more
    assert asked.total() >= (seeds if requeue else 1)
    assert len(refused) <= 0.05 * asked.total(), "\n".join(refused)


@pytest.mark.parametrize(
    ("settings", "may_requeue"),
    [
        ({}, True),
        ({"enabled": True}, False),
        ({"enabled": True, "allow_requeue": True}, True),
        ({"enabled": True, "allow_requeue": True, "rest_token": "t"}, False),
        ({"allow_requeue": False}, True),
    ],
)
def test_plans_know_what_the_applier_may(settings: dict[str, Any], may_requeue: bool) -> None:
    """Without an applier a person makes the change; slurmrestd has no requeue."""
    found = fleet_rules(Settings(apply_slurm=SlurmApplySettings(**settings)))
    assert found.may_requeue is may_requeue


@pytest.mark.parametrize(
    ("main", "paris", "may_requeue"),
    [("true", "true", True), ("true", "false", False), ("false", "true", False)],
)
def test_of_several_slurms_every_one_must_take_a_requeue(
    tmp_path: Path, main: str, paris: str, may_requeue: bool
) -> None:
    """What one cluster's applier would refuse is proposed to none."""
    for name, allowed in (("trimtab", main), ("paris", paris)):
        (tmp_path / f"{name}.toml").write_text(
            f'[apply_slurm]\nenabled = true\nallow_requeue = {allowed}\n'
            + '[[clusters.others]]\nname = "paris"\nsettings = "paris.toml"\n'
            * (name == "trimtab"),
            encoding="utf-8",
        )
    settings = load_settings(tmp_path / "trimtab.toml", environ={}).settings
    assert fleet_rules(settings).may_requeue is may_requeue
