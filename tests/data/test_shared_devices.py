"""Who holds a device that a scheduler gives out in shares, whatever its readings name."""

from pathlib import Path
from typing import Any

import pytest
from factories import H100, NOW, make_job, make_samples
from rollup_cases import allocations, facts, rows_of

from data.boards.board_shares import BOARD_SHARE, SHARING, board_shares
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Gpu
from data.facts.jobs import Job, JobState, SchedulerFacts
from data.store import open_store


def hours(folder: Path, samples: Any, *spans: dict[str, Any]) -> dict[str, float]:
    """The board-hours by job, '' for nobody, of an hour of one or more boards."""
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        store.keep(facts(samples, allocations(*spans)))
        found = rows_of(store, "hourly")
        found = found.groupby("job_id")["board_seconds"].sum() / 3600
        return {str(job): float(value) for job, value in found.items()}


def span(job: str, **where: Any) -> dict[str, Any]:
    """A quarter of a board."""
    return {"job_id": job, "label_id": job, "node": "node-1", "gpu_count": 0.25} | where


def labelled(label: str, **columns: Any) -> Any:
    """An hour of one board whose samples name this job."""
    return make_samples(minutes=61, job_id=label).assign(gpu_index="0", **columns)


@pytest.mark.parametrize("label", ["a", "c", ""])
@pytest.mark.parametrize("where", [{"gpu_index": "0"}, {"gpu_uuid": "GPU-0000"}, {}])
def test_all_that_hold_shares_of_a_device_hold_it(
    tmp_path: Path, label: str, where: dict[str, str]
) -> None:
    """Whatever the exporter names: the board's hour is split evenly, and the parts add up."""
    found = hours(tmp_path, labelled(label), *(span(job, **where) for job in "abc"))
    assert found == {job: pytest.approx(1 / 3, abs=1e-9) for job in "abc"}


def test_a_share_somewhere_on_a_node_of_several_boards_takes_none_of_them(tmp_path: Path) -> None:
    """Which board it is on is not known, so that what the samples name stays as it is."""
    samples = make_samples(gpus=2, minutes=61, job_id="a").assign(gpu_index="0")
    assert hours(tmp_path, samples, span("b")) == {"a": pytest.approx(2.0)}


@pytest.mark.parametrize("where", [{"gpu_index": "1"}, {"gpu_uuid": "GPU-9"}, {"node": "other"}])
def test_a_share_of_another_device_changes_nothing(tmp_path: Path, where: dict[str, str]) -> None:
    """Only the job that the samples name holds the board."""
    assert hours(tmp_path, labelled("a"), span("b", **where)) == {"a": pytest.approx(1.0)}


def test_a_whole_allocation_does_not_share_what_the_samples_name(tmp_path: Path) -> None:
    """The samples say who is there; a whole device is given to one job at a time."""
    found = hours(tmp_path, labelled("a"), span("b", gpu_index="0", gpu_count=1.0))
    assert found == {"a": pytest.approx(1.0)}


def device(number: int, *holders: str, **changes: Any) -> Gpu:
    """A board of node n with its holders, the first of them as its readings name it."""
    values = {
        "gpu_uuid": f"GPU-{number}", "mig_instance": "", "mig_profile": "", "node": "n",
        "gpu_model": H100, "memory_total_mib": None, "last_seen_at": NOW,
        "job_id": "".join(holders[:1]), "co_holders": holders[1:],
    }  # fmt: skip
    return Gpu(**(values | changes))  # type: ignore[arg-type]


def replicas(names: str, share: str = "1") -> list[Job]:
    """Jobs that hold time-sliced replicas of node n, as boards."""
    extra = ((SHARING, "time-slicing"), (BOARD_SHARE, share))
    facts = SchedulerFacts(state=JobState.RUNNING, nodes=("n",), extra=extra)
    return [make_job(name, scheduler=facts) for name in names]


@pytest.mark.parametrize("profile", ["fnord", "9g.999gb", "unknown"])
@pytest.mark.parametrize("model", [H100, "a board that nobody knows"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_instances_of_unknown_size_are_equal_parts_of_their_board(
    profile: str, model: str, count: int
) -> None:
    """As many as were read of it, held or free; no change of their holders is planned."""
    held = ["j0", "j1"][:count]
    gpus = [
        device(0, *held[number : number + 1], mig_instance=str(number), mig_profile=profile,
               gpu_model=model)
        for number in range(count)
    ]  # fmt: skip
    jobs = [make_job(name, gpu_model=model, mig_profile=profile) for name in held]
    shares = board_shares(gpus, jobs, load_gpu_catalogue())
    assert {name: share.boards for name, share in shares.items()} == dict.fromkeys(held, 1 / count)
    assert all("not known" in share.why for share in shares.values())


def test_instances_of_known_size_are_no_shares() -> None:
    """They are devices of their own: each job may be changed alone."""
    job = make_job(gpu_model=H100, mig_profile="1g.10gb")
    assert board_shares((), [job], load_gpu_catalogue()) == {}


def test_readings_that_name_every_holder_tell_the_shares() -> None:
    """A job that is alone on its board has all of it, whatever the node's shares amount to."""
    gpus = [device(0, "a"), device(1, "b", "c")]
    shares = board_shares(gpus, replicas("abc", "0.4"), load_gpu_catalogue())
    assert {name: (share.boards, share.others) for name, share in shares.items()} == {
        "a": (1.0, ()), "b": (0.5, ("c",)), "c": (0.5, ("b",)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("boards", "held"),
    [
        (("a", "b", ""), 2.0),
        (("a", "", ""), 1.0),
        (("a", "b", "works"), 3.0),
        (("", "", ""), 3.0),
        ((), 3.0),
    ],
    ids=str,
)
def test_shares_of_a_node_take_no_board_that_is_read_to_be_free(
    boards: tuple[str, ...], held: float
) -> None:
    """Three replicas of three boards; an exporter that names nobody tells of no free board."""
    gpus = [
        device(number, unexplained_at=NOW)
        if name == "works"
        else device(number, *filter(None, [name]))
        for number, name in enumerate(boards)
    ]
    shares = board_shares(gpus, replicas("abc"), load_gpu_catalogue())
    assert sum(share.boards for share in shares.values()) == pytest.approx(held)
    assert all(len(share.others) == 2 for share in shares.values())
