"""Steps of Slurm changes: what is asked for, in whose spelling, by which interface."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from beds.slurm_apply import MODEL, proposal

from dashboard.apply.contract.applier import Remains
from dashboard.apply.slurm.change.closing import closing_of
from dashboard.apply.slurm.change.moves import Move, Moves, moves_for, same_value, type_key
from dashboard.apply.slurm.change.steps import moves_back, steps_of
from dashboard.apply.slurm.client.gres_text import (
    GresRequest,
    canonical_gres,
    gpu_request,
    with_gpus,
)
from dashboard.apply.slurm.client.requests import payload_of
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.actions import Action
from data.records.plans import Configuration

A100 = "A100-SXM4-80GB"


def state(**changes: str) -> dict[str, str]:
    """A job of 24.11 that waits for two nodes with four H100 each."""
    return {
        "interface": "commands 24.11",
        "number": "7",
        "address": "7",
        "JobState": "PENDING",
        "Partition": "gpu",
        "Features": "",
        "Gres": "gpu:h100:4",
        "NumNodes": "2-2",
        "NumTasks": "2",
        "Hold": "no",
        "Restarts": "0",
        "TimeLimit": "60",
        "batch": "yes",
        "requeue": "yes",
        type_key(MODEL, ""): "h100",
        type_key(A100, ""): "a100",
    } | changes


def moves(now: dict[str, str], has: int, gets: int, *, requeue: bool = False, **more: Any) -> Moves:
    """The moves of a recommendation."""
    return moves_for(proposal("7", has, gets, **more), now, allow_requeue=requeue)


def values(found: Moves) -> list[tuple[str, str]]:
    """Field and new value of every update."""
    return [(move.field, move.after) for move in found.moves if move.verb == "update"]


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("gres:gpu:h100:4", "gpu:h100:4"),
        ("gres/gpu:h100:4", "gpu:h100:4"),
        ("gres/gpu=1", "gpu:1"),
        ("gres:gpu:2,gres:lustre:1", "gpu:2,lustre:1"),
        ("", ""),
    ],
)
def test_every_release_reads_as_one_spelling(written: str, same: str) -> None:
    """The prefix is the release's, not the job's."""
    assert canonical_gres(written) == same


def test_other_resources_of_a_request_are_kept() -> None:
    """`Gres=` replaces the whole request: what is not repeated would be lost."""
    wanted = GresRequest(gpu_type="h100", count=1)
    assert with_gpus("lustre:1,gpu:h100:4", wanted) == "lustre:1,gpu:h100:1"


@pytest.mark.parametrize(
    "request_", ["gpu:h100:2,gpu:a100:2", "shard:3", "lustre:1", "gpu:0", "gpu:h100;reboot", ""]
)
def test_requests_that_are_not_one_kind_of_gpu_are_refused(request_: str) -> None:
    """Several types, shares, none, or words that Slurm would not write."""
    with pytest.raises(ChangeRefusedError):
        gpu_request(request_)


@pytest.mark.parametrize(
    ("gets", "expected"),
    [
        (6, [("Gres", "gpu:h100:3")]),
        (2, [("Gres", "gpu:h100:1")]),
        (4, [("Gres", "gpu:h100:2")]),
        (1, [("NumNodes", "1-1"), ("Gres", "gpu:h100:1")]),
        (3, [("NumNodes", "1-1"), ("Gres", "gpu:h100:3")]),
        (16, [("Gres", "gpu:h100:8")]),
    ],
)
def test_the_shape_keeps_as_many_nodes_as_divide(gets: int, expected: list[Any]) -> None:
    """Nodes stay where the count allows: tasks and memory are asked for by node."""
    assert values(moves(state(), 8, gets)) == expected


def test_two_fields_change_on_hold_and_one_field_does_not() -> None:
    """Holding costs the place in the queue, so it is done only when it must be."""
    assert [move.verb for move in moves(state(), 8, 1).moves] == [
        "hold",
        "update",
        "update",
        "release",
    ]
    assert [move.verb for move in moves(state(), 8, 4).moves] == ["update"]


def test_a_hold_of_the_owner_is_not_released() -> None:
    """Who held it may want it to stay held."""
    assert [move.verb for move in moves(state(Hold="user"), 8, 1).moves] == ["update", "update"]


def test_another_type_is_asked_for_in_the_words_of_the_site() -> None:
    """The site's nodes say what an A100 is called; a release that cannot change it is refused."""
    proposed = Configuration(gpu_model=A100, gpu_count=8)
    smaller = {"action": Action.SMALLER_GPU, "proposed": proposed}
    assert values(moves(state(), 8, 8, **smaller)) == [("Gres", "gpu:a100:4")]
    with pytest.raises(ChangeRefusedError, match=r"22\.05 cannot change a GPU type"):
        moves(state(interface="commands 22.05"), 8, 8, **smaller)
    with pytest.raises(ChangeRefusedError, match="no gres type of this site"):
        moves(state() | {type_key(A100, ""): ""}, 8, 8, **smaller)
    with pytest.raises(ChangeRefusedError, match="names no GPU type"):
        moves(state(Gres="gpu:4"), 8, 8, **smaller)


def test_a_range_of_nodes_is_no_number_of_gpus() -> None:
    """`-N1-4` with a request by node may be anything: refused."""
    with pytest.raises(ChangeRefusedError, match="1 to 4 nodes"):
        moves(state(NumNodes="1-4"), 8, 4)


@pytest.mark.parametrize(
    ("field", "option"), [("TresPerJob", "--gpus"), ("TresPerTask", "--gpus-per-task")]
)
def test_what_the_environment_of_the_script_keeps_is_not_changed(field: str, option: str) -> None:
    """In no release, and whether the job runs or waits."""
    for job_state in ("PENDING", "RUNNING"):
        kept = state(Gres="", JobState=job_state, NumTasks="4", **{field: "gpu:4"})
        with pytest.raises(ChangeRefusedError, match=f"with {option}, which"):
            moves(kept, 4, 2, requeue=True)


@pytest.mark.parametrize(
    "odd",
    [
        {"TresPerJob": "gpu:4"},
        {"TresPerSocket": "gpu:1"},
        {"Gres": ""},
        {"JobState": "RUNNING+CONFIGURING"},
        {"JobState": "UNKNOWN"},
    ],
)
def test_what_cannot_be_told_for_certain_is_refused(odd: dict[str, str]) -> None:
    """Two requests at once, by socket, none, or a job on its way."""
    with pytest.raises(ChangeRefusedError):
        moves(state(**odd), 8, 4)


def test_a_running_job_loses_nodes_or_is_requeued() -> None:
    """Whole nodes go in place; anything else needs consent, a batch job and its owner's leave."""
    runs = state(JobState="RUNNING", NumNodes="4")
    assert values(moves(runs, 16, 8)) == [("NumNodes", "2")]
    assert [move.verb for move in moves(runs, 16, 12).moves] == ["update"]
    with pytest.raises(ChangeRefusedError, match="allow_requeue"):
        moves(runs, 16, 6)
    verbs = [move.verb for move in moves(runs, 16, 6, requeue=True).moves]
    assert verbs == ["requeuehold", "wait", "update", "update", "release"]
    for refused in ({"requeue": "no"}, {"batch": "no"}, {"JobState": "SUSPENDED"}):
        with pytest.raises(ChangeRefusedError, match="cannot be requeued"):
            moves(runs | refused, 16, 6, requeue=True)
    with pytest.raises(ChangeRefusedError, match="no way to requeue"):
        moves(runs | {"interface": "v0.0.42 24.11"}, 16, 6, requeue=True)


def test_partition_and_features_come_from_the_recommendation() -> None:
    """They are changed only when it names them, and never to words of a shell."""
    named = {"details": (("partition", "a100"), ("features", "nvlink&new"))}
    assert values(moves(state(), 8, 4, **named))[:2] == [
        ("Partition", "a100"),
        ("Features", "nvlink&new"),
    ]
    with pytest.raises(ChangeRefusedError, match="partition"):
        moves(state(), 8, 4, details=(("partition", "x; reboot"),))


@pytest.mark.parametrize("seconds", ["3600", "7200", "", "nan", "1e400", "0", "-5", "soon"])
def test_only_a_lower_time_limit_is_one(seconds: str) -> None:
    """Up, unlimited and nonsense are refused."""
    with pytest.raises(ChangeRefusedError):
        moves(state(), 8, 8, action=Action.TIME_LIMIT, details=(("time_limit_seconds", seconds),))


@pytest.mark.parametrize("begin", ["", "tomorrow", "2027-01-01T00:00:00"])
def test_a_start_needs_its_zone(begin: str) -> None:
    """A time without a zone would be that of whichever machine runs the client."""
    with pytest.raises(ChangeRefusedError):
        moves(
            state(StartTime=""), 8, 8, action=Action.SHIFT_IN_TIME, details=(("begin_at", begin),)
        )


def test_the_way_back_touches_what_was_touched() -> None:
    """Only fields that still hold what was sent go back; any other value stops it."""
    there = moves(state(), 8, 1)
    changed = state(NumNodes="1-1", Gres="gpu:h100:1", Partition="elsewhere")
    back = moves_back(there.moves, changed, allow_requeue=False)
    assert values(back) == [("NumNodes", "2-2"), ("Gres", "gpu:h100:4")]
    with pytest.raises(StalePlanError, match="neither"):
        moves_back(there.moves, changed | {"Gres": "gpu:h100:2"}, allow_requeue=False)
    assert moves_back(there.moves, state(), allow_requeue=False).moves == ()


def test_a_change_that_stopped_half_way_leaves_no_job_held() -> None:
    """The way back of a change whose later steps were refused ends with the release."""
    there = moves(state(), 8, 1)
    held = moves_back(there.moves, state(Hold="user"), allow_requeue=False)
    assert [move.verb for move in held.moves] == ["release"]
    half = moves_back(there.moves, state(Hold="user", NumNodes="1-1"), allow_requeue=False)
    assert [(move.verb, move.after) for move in half.moves] == [
        ("update", "2-2"),
        ("update", "gpu:h100:4"),
        ("release", "no"),
    ]
    foreign = state(Hold="user", NumNodes="1-1", Gres="gpu:h100:3")
    let_go = moves_back(there.moves, foreign, allow_requeue=False)
    assert [(move.verb, move.after) for move in let_go.moves][-1] == ("release", "no")
    runs = state(JobState="RUNNING", NumNodes="2")
    requeued = moves(runs, 8, 6, requeue=True)
    stuck = moves_back(requeued.moves, state(Hold="user", Restarts="1"), allow_requeue=False)
    assert [move.verb for move in stuck.moves] == ["release"]


OLD, NEW = "v0.0.38 22.05", "v0.0.42 24.11"
TWENTY = {"time_limit": {"set": True, "infinite": False, "number": 20}}
BODIES = [
    (OLD, "Gres", "gpu:h100:2", {"gres": "gpu:h100:2"}),
    (OLD, "TresPerJob", "gpu:h100:2", {"gpus": "h100:2"}),
    (OLD, "TimeLimit", "20", {"time_limit": 20}),
    (OLD, "NumNodes", "1-1", {"nodes": "1-1"}),
    (NEW, "Gres", "gpu:h100:2,a:1", {"tres_per_node": "gres/gpu:h100:2,gres/a:1"}),
    (NEW, "TresPerJob", "gpu:2", {"tres_per_job": "gres/gpu:2"}),
    ("v0.0.41 24.11", "TimeLimit", "20", TWENTY),
    ("v0.0.41 24.11", "NumNodes", "1", {"minimum_nodes": 1, "maximum_nodes": 1}),
    (NEW, "Features", "nvlink", {"constraints": "nvlink"}),
]


@pytest.mark.parametrize(("interface", "field", "value", "body"), BODIES)
def test_slurmrestd_is_sent_the_field_of_its_version(
    interface: str, field: str, value: str, body: dict[str, Any]
) -> None:
    """24.11 answers the field of 22.05 with 200 and a warning, and changes nothing."""
    sent = payload_of(interface, "update", address="7", number="7", field=field, value=value)
    assert sent == {"method": "POST", "path": "/job/7", "body": body}


@pytest.mark.parametrize(
    ("interface", "verb", "field", "value"),
    [
        ("v0.0.38 22.05", "update", "NumNodes", "1"),
        ("v0.0.38 22.05", "update", "TresPerTask", "gpu:1"),
        ("v0.0.38 22.05", "update", "TresPerJob", "gpu:2,lustre:1"),
        ("v0.0.38 22.05", "drain", "NodeState", "x"),
        ("v0.0.39 23.02", "update", "Gres", "gpu:1"),
        ("v0.0.42 24.11", "requeuehold", "Restarts", "1"),
    ],
)
def test_what_a_version_cannot_do_is_refused(
    interface: str, verb: str, field: str, value: str
) -> None:
    """Better no step than one that is answered with 200 and ignored."""
    with pytest.raises(ChangeRefusedError):
        payload_of(interface, verb, address="7", number="7", field=field, value=value)


def test_payloads_are_argument_lists_and_texts_are_quoted() -> None:
    """No shell is between us and Slurm; a person's shell gets quotes."""
    waits = state(address="7_[2-5]")
    step = steps_of(moves(waits, 8, 4).moves, waits)[0]
    argv = ["scontrol", "update", "JobId=7_[2-5]", "Gres=gpu:h100:2"]
    assert json.loads(step.payload) == {"argv": argv}
    assert step.text == "scontrol update 'JobId=7_[2-5]' Gres=gpu:h100:2"


def taken(now: dict[str, str], moves_sent: Iterable[Move]) -> dict[str, str]:
    """The job after moves, as Slurm would have it."""
    then = dict(now)
    for move in moves_sent:
        if move.verb == "requeuehold":
            then |= {"Restarts": move.after, "Hold": "user", "JobState": "PENDING"}
        elif move.verb != "wait":
            then[move.field] = move.after
    return then


@pytest.mark.parametrize("gets", [1, 3, 6])
@pytest.mark.parametrize("start", ["PENDING", "RUNNING"])
@pytest.mark.parametrize("foreign", ["", "Gres", "NumNodes", "Hold", "JobState"])
def test_a_change_that_is_given_up_ends_whole_and_never_on_hold(
    gets: int, start: str, foreign: str
) -> None:
    """Cut after any step, and whatever somebody else set since: finished or taken back."""
    before = state(JobState=start, NumNodes="2-2" if start == "PENDING" else "2", TRES="x")
    there = moves(before, 8, gets, requeue=True).moves
    others = {"Gres": "gpu:h100:7", "NumNodes": "9-9", "Hold": "no", "JobState": "RUNNING"}
    for sent in range(1, len(there) + 1):
        cut = taken(before, there[:sent])
        cut |= {foreign: others[foreign]} if foreign else {}
        closing = closing_of(there, sent, cut, total="x")
        after = taken(cut, closing.moves)
        assert after["Hold"] == "no" or after["JobState"] != "PENDING"
        assert closing_of(there, sent, after, total="x").moves == ()
        updates = [move for move in there if move.verb == "update"]
        if closing.left is Remains.ALL:
            assert all(after[move.field] == move.after for move in updates)
        if closing.left is Remains.NOTHING:
            assert all(same_value(move.field, after[move.field], move.before) for move in updates)
        if not foreign and start == "PENDING":
            assert closing.left in (Remains.ALL, Remains.NOTHING)


def test_jobs_that_take_whole_nodes_are_refused() -> None:
    """Slurm gives them all GPUs of their nodes."""
    with pytest.raises(ChangeRefusedError, match="--exclusive"):
        moves(state(whole_nodes="yes"), 8, 4)


def test_a_running_job_of_a_range_of_nodes_is_not_requeued_for_another_count() -> None:
    """It runs on three nodes and asked for one to three: the next run may get any number."""
    runs = state(JobState="RUNNING", NumNodes="3", nodes_asked="1")
    with pytest.raises(ChangeRefusedError, match="asks for 1 to 3 nodes"):
        moves(runs, 12, 3, requeue=True)
    assert values(moves(runs, 12, 8)) == [("NumNodes", "2")]
