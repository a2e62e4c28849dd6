"""A slice of a board has one size wherever boards held, used, idle and free are told."""

from datetime import timedelta

import pandas as pd
import pytest
from drawn import examples
from factories import NOW, make_collected, make_job, make_samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.store import Store, open_store

LAYOUTS = (
    ("",),
    ("7g.40gb",),
    ("3g.20gb", "3g.20gb"),
    ("4g.20gb", "3g.20gb"),
    ("3g.20gb", "2g.10gb", "1g.5gb"),
    ("2g.10gb", "1g.5gb+me"),
    ("1g.5gb",) * 7,
    ("1g.5gb",),
)
HOUR = timedelta(hours=1)


def cut_boards(layouts: list[tuple[str, ...]], held: list[bool], used: list[float]) -> pd.DataFrame:
    """Two hours and a minute of boards cut so; an instance that is held works, others rest."""
    frames = []
    for board, layout in enumerate(layouts):
        for instance, profile in enumerate(layout):
            at = len(frames)
            is_held = held[at % len(held)]
            frames.append(
                make_samples(
                    minutes=181,
                    gpu_uuid=f"GPU-{board}",
                    gpu_model="A100-SXM4-40GB",
                    mig_instance=str(instance) if profile else "",
                    mig_profile=profile,
                    job_id=f"n{at % 2}/j{at}" if is_held else "",
                    utilization_ratio=used[at % len(used)] if is_held else 0.0,
                    memory_used_mib=20_000.0 if is_held else 0.0,
                )
            )
    return pd.concat(frames, ignore_index=True)


def assert_one_size(store: Store, samples: pd.DataFrame) -> None:
    """Fleet and group histories and job holdings are those of the energy statement, by the hour."""
    ids = sorted(set(samples["job_id"]) - {""})
    jobs = tuple(make_job(name, namespace=name[:2]) for name in ids)
    store.keep(make_collected(samples, jobs))
    window = {"start": NOW - 2 * HOUR, "end": NOW}
    stated = store.reader.energy(**window, by="job").set_index("key")
    of_jobs = stated[stated.index.isin(ids)]
    fleet = store.reader.fleet_history(**window, slot_seconds=3600)
    assert fleet["boards"].tolist() == [samples["gpu_uuid"].nunique()] * 2
    parts = fleet[["allocated_gpus", "unattributed_gpus", "free_gpus"]].sum(axis=1)
    assert parts.tolist() == pytest.approx(fleet["boards"].tolist())
    assert fleet["allocated_gpus"].sum() == pytest.approx(of_jobs["gpu_hours"].sum())
    assert fleet["idle_allocated_gpus"].sum() == pytest.approx(of_jobs["idle_gpu_hours"].sum())
    assert (fleet["allocated_gpus"] - fleet["used_gpus"]).to_numpy() == pytest.approx(
        fleet["idle_allocated_gpus"].to_numpy()
    )
    groups = store.reader.group_history(**window, slot_seconds=3600)
    for kind in ("fleet", "namespace", "gpu_model"):
        sums = groups[groups["kind"] == kind][["allocated_gpus", "effective_gpus"]].sum()
        assert sums["allocated_gpus"] == pytest.approx(of_jobs["gpu_hours"].sum()), kind
        idle = sums["allocated_gpus"] - sums["effective_gpus"]
        assert idle == pytest.approx(of_jobs["idle_gpu_hours"].sum()), kind
    power = groups[groups["kind"] == "fleet"]["power_watts"].sum()
    assert power / 1000 == pytest.approx(of_jobs["energy_kwh"].sum())


@pytest.mark.parametrize("profile", ["3g.20gb", "1g.5gb", "2g.10gb"])
def test_six_held_slices_of_three_boards_are_one_size(store: Store, profile: str) -> None:
    """Two slices a board, whatever stays uncut: parts and free boards are the boards."""
    assert_one_size(store, cut_boards([(profile, profile)] * 3, [True], [0.5]))


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    layouts=st.lists(st.sampled_from(LAYOUTS), min_size=1, max_size=4),
    held=st.lists(st.booleans(), min_size=1, max_size=5),
    used=st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=3),
)
def test_any_cut_conserves_its_boards(
    layouts: list[tuple[str, ...]],
    held: list[bool],
    used: list[float],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Of any layouts, whoever holds what of them."""
    path = tmp_path_factory.mktemp("cut") / "t.duckdb"
    with open_store(f"duckdb:///{path}") as store:
        assert_one_size(store, cut_boards(layouts, held, used))
