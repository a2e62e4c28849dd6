"""Slurm's words in every release's spelling."""

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.slurm.accounting import (
    ACCOUNTING_FIELDS,
    SEPARATOR,
    checkpoint_sign,
    read_accounting_row,
    rows_of,
    submit_lines_of,
)
from collectors.slurm.backend import read_nodes, read_queue
from collectors.slurm.gpu_models import gpu_models_of
from collectors.slurm.records import read_node, read_queue_job
from collectors.slurm.values import (
    Gpus,
    gpu_shares_of,
    gpus_of,
    hosts_of,
    identifier_of,
    job_state_of,
    mig_of,
    moment_of,
    number_of,
    seconds_of_minutes,
    text_of,
    tres_text,
    words_of,
)
from data.base.errors import SourceNotConfiguredError
from data.facts.jobs import JobState

SET = {"set": True, "infinite": False, "number": 60}
AT = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "number"),
    [
        (60, 60.0),
        (SET, 60.0),
        (SET | {"set": False}, None),
        (SET | {"infinite": True}, None),
        ("60", 60.0),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        (None, None),
        (True, None),
        (float("inf"), None),
        (10**400, None),
        (0, 0.0),
    ],
)
def test_a_number_is_one_number_in_every_release(said: object, number: float | None) -> None:
    """Plain, wrapped and as text; what is not set stays unknown."""
    assert number_of(said) == number
    assert seconds_of_minutes(said) == (None if number is None else number * 60)


@pytest.mark.parametrize("said", [2**32 - 2, 2**32 - 1, str(2**32 - 1)])
def test_sentinels_are_no_time_limit(said: object) -> None:
    """NO_VAL and INFINITE as plain numbers, which older releases print."""
    assert seconds_of_minutes(said) is None


@pytest.mark.parametrize(
    ("said", "moment"),
    [
        (int(AT.timestamp()), AT),
        (SET | {"number": int(AT.timestamp())}, AT),
        ("2026-01-05T12:00:00", AT),
        ("Unknown", None),
        ("None", None),
        ("2026-01-05Tnoon", None),
        (0, None),
        (2**32 - 2, None),
        (-1, None),
    ],
)
def test_a_time_is_utc_or_unknown(said: object, moment: datetime | None) -> None:
    """0 and Slurm's own "infinite" are no times."""
    assert moment_of(said) == moment


@pytest.mark.parametrize(
    ("said", "words", "state"),
    [
        ("RUNNING", ("RUNNING",), JobState.RUNNING),
        (["RUNNING"], ("RUNNING",), JobState.RUNNING),
        ("CANCELLED by 1000", ("CANCELLED",), JobState.CANCELLED),
        (["COMPLETED", "COMPLETING"], ("COMPLETED", "COMPLETING"), JobState.RUNNING),
        ("OUT_OF_MEMORY", ("OUT_OF_MEMORY",), JobState.FAILED),
        (["PENDING", "REQUEUED"], ("PENDING", "REQUEUED"), JobState.PENDING),
        ("SOMETHING_NEW", ("SOMETHING_NEW",), JobState.UNKNOWN),
        ("", (), JobState.UNKNOWN),
        ("DOWN*+DRAIN", ("DOWN", "DRAIN"), JobState.UNKNOWN),
    ],
)
def test_states_are_words(said: object, words: tuple[str, ...], state: JobState) -> None:
    """A list or a text with flags; a state that is not known is said to be unknown."""
    assert words_of(said) == words
    assert job_state_of(words) is state


@pytest.mark.parametrize(
    ("said", "hosts"),
    [
        ("h100-[01-02,05]", ("h100-01", "h100-02", "h100-05")),
        ("a,b-[9-11],c", ("a", "b-9", "b-10", "b-11", "c")),
        ("r[0-1]n[1-2]x", ("r0n1x", "r0n2x", "r1n1x", "r1n2x")),
        ("alone", ("alone",)),
        ("None assigned", ()),
        ("", ()),
    ],
)
def test_node_lists_expand_in_order(said: str, hosts: tuple[str, ...]) -> None:
    """The order is that of gres_detail; leading zeros stay."""
    assert hosts_of(said) == hosts


@pytest.mark.parametrize(
    "said",
    [
        "n[1-",
        "n]1[",
        "n[2-1]",
        "n[0-99999999]",
        "n[1-900]m[1-900]",
        "n[a]",
        "n[[1]]",
        f"n[{'0' * 90}-9]",
    ],
)
def test_what_is_no_node_list_is_refused(said: str) -> None:
    """A hostile or broken list neither hangs nor fills the memory."""
    with pytest.raises(ValueError, match=r"node list|range|int"):
        hosts_of(said)


@given(st.sets(st.integers(0, 400), min_size=1))
def test_compressed_names_expand_to_themselves(numbers: set[int]) -> None:
    """Whatever numbers a range list is made of, exactly these come back."""
    ordered = sorted(numbers)
    starts = [ordered[0]] + [b for a, b in pairwise(ordered) if b != a + 1]
    ends = [a for a, b in pairwise(ordered) if b != a + 1] + [ordered[-1]]
    ranges = ",".join(f"{a:04d}-{b:04d}" for a, b in zip(starts, ends, strict=True))
    assert hosts_of(f"gpu[{ranges}]") == tuple(f"gpu{number:04d}" for number in ordered)


@pytest.mark.parametrize(
    ("said", "gpus"),
    [
        ("gres:gpu:h100:4", [("h100", 4, None)]),
        ("gres/gpu:h100:4", [("h100", 4, None)]),
        ("gres/gpu=1", [("", 1, None)]),
        ("gres:gpu:2", [("", 2, None)]),
        ("gpu", [("", 1, None)]),
        ("gpu:a100", [("a100", 1, None)]),
        ("gpu:h100:8(S:0-1)", [("h100", 8, None)]),
        ("gpu:h100:4(IDX:0-1,5-6)", [("h100", 4, ("0", "1", "5", "6"))]),
        ("gpu:h100:2(IDX:0,7),gpu:a100:0(IDX:N/A)", [("h100", 2, ("0", "7"))]),
        ("gpu:h100:2(CNT:2)", [("h100", 2, None)]),
        ("gpu:(null):3(IDX:0-1,7)", [("", 3, ("0", "1", "7"))]),
        ("gpu:(null):0(IDX:N/A)", []),
        ("gpu:h100:3(IDX:0-1)", [("h100", 3, None)]),
        ("gpu:h100:2(IDX:x)", [("h100", 2, None)]),
        ("gpu:a100_1g.5gb:7(S:0)", [("a100_1g.5gb", 7, None)]),
        ("cpu=2,mem=200M,gres/gpu=8,gres/gpu:h100=8", [("h100", 8, None)]),
        ("gres/gpu=8,gres/gpu:h100=4", [("", 8, None)]),
        ("gpu:h100:4,gpu:a100:2,shard:8", [("h100", 4, None), ("a100", 2, None)]),
        ("license=1,gres/gpumem=3,gres/gpuutil=9", []),
        ("shard:8", []),
        ("(null)", []),
        (None, []),
    ],
)
def test_gpus_are_read_from_every_spelling(
    said: object, gpus: list[tuple[str, int, tuple[str, ...] | None]]
) -> None:
    """Type, count and, where Slurm says it, which ones."""
    assert gpus_of(said) == tuple(
        Gpus(gpu_type=gpu_type, count=count, indices=indices) for gpu_type, count, indices in gpus
    )


@pytest.mark.parametrize(
    ("said", "in_use"),
    [
        ("gpu:h100:2(IDX:0-1)", 2),
        ("gpu:(null):3(IDX:0-2)", 3),
        ("gpu:0", 0),
        ("(null)", 0),
        ("shard:h100:4(4/4),gpu:h100:1(IDX:1)", 1),
        ("gpu:h100:two(IDX:0-1)", None),
        ("gpu:h100:2K", None),
        ("gpu=h100=2", None),
        ("gpu:h100:2[0-1]", None),
        (..., None),
    ],
)
def test_gpus_in_use_that_are_not_understood_are_unknown(said: object, in_use: int | None) -> None:
    """None in use would be a node of free GPUs; `...` is an answer without the field."""
    record = {"name": "n1", "state": "IDLE", "gres": "gpu:h100:4"}
    record |= {} if said is ... else {"gres_used": said}  # type: ignore[dict-item]
    dropped: Counter[str] = Counter()
    (node,) = read_nodes([record], dropped)
    assert node.gpus_in_use == in_use
    assert dropped == ({"unknown-gpus-in-use": 1} if in_use is None else {})


def test_shares_are_no_gpus() -> None:
    """A job on shards holds no device of its own."""
    assert [gpu.share for gpu in gpu_shares_of("gres:shard:2")] == ["shard"]
    assert [gpu.share for gpu in gpu_shares_of("cpu=1,gres/mps=50")] == ["mps"]
    assert not gpu_shares_of("gres/gpu:h100:2")


def test_slurmdbds_list_of_resources_is_a_tres_string() -> None:
    """Counts that are not known are left out."""
    entries = [
        {"type": "cpu", "name": None, "id": 1, "count": 2},
        {"type": "energy", "name": "", "id": 3, "count": None},
        {"type": "gres", "name": "gpu:h100", "id": 1003, "count": 4},
    ]
    assert tres_text(entries) == "cpu=2,gres/gpu:h100=4"


def test_a_mig_type_names_board_and_profile() -> None:
    """As AutoDetect=nvml writes it, and a type that is only a profile."""
    assert mig_of("a100_1g.5gb") == ("a100", "1g.5gb")
    assert mig_of("nvidia_h100_80gb_hbm3_3g.40gb") == ("nvidia_h100_80gb_hbm3", "3g.40gb")
    assert mig_of("1g.10gb") == ("", "1g.10gb")
    assert mig_of("h100") == ("h100", "")


def test_text_and_identifiers() -> None:
    """What Slurm writes for nothing is nothing; task 0 is a task."""
    assert [text_of(name) for name in ("(null)", "N/A", "None", None, " x ", ["a", "b"])] == [
        *("", "", "", "", "x", "a,b"),
    ]
    assert [identifier_of(number) for number in (0, None, SET, SET | {"set": False})] == [
        *("0", "", "60", ""),
    ]


def test_the_map_of_gpu_models_is_read_or_refused() -> None:
    """A pair without a model names itself."""
    assert gpu_models_of(" H100=H100-SXM5-80GB, a100=A100-SXM4-80GB,") == {
        "h100": "H100-SXM5-80GB",
        "a100": "A100-SXM4-80GB",
    }
    assert gpu_models_of("") == {}
    with pytest.raises(SourceNotConfiguredError, match="h100"):
        gpu_models_of("h100")


QUEUE_FIELDS = {
    *("job_id", "job_state", "nodes", "node_count", "gres_detail", "tres_per_node", "tasks"),
    *("tres_alloc_str", "start_time", "time_limit", "array_job_id", "array_task_id", "name"),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(QUEUE_FIELDS)), JSON))
def test_no_answer_however_strange_is_a_crash(changes: dict[str, object]) -> None:
    """Of a good job and a broken one, the good one is told and the other counted."""
    dropped: Counter[str] = Counter()
    read = read_queue([queue_record(), queue_record(**changes)], dropped)
    assert len(read) + dropped["unreadable-job"] == 2


def queue_record(**changes: object) -> dict[str, object]:
    """A job that runs on two GPUs of one node."""
    return {
        "job_id": 7,
        "job_state": "RUNNING",
        "name": "train",
        "user_name": "",
        "user_id": 1000,
        "nodes": "n1",
        "node_count": 1,
        "gres_detail": ["gpu:h100:2(IDX:0-1)"],
        "tres_per_node": "gres:gpu:h100:2",
        "tres_req_str": "cpu=1",
        "start_time": int(AT.timestamp()),
        "end_time": int(AT.timestamp()) + 3600,
        "time_limit": 60,
    } | changes


def test_what_is_expected_has_not_happened() -> None:
    """A pending job's start and a running job's end lie in the future: they are left out."""
    running = read_queue_job(queue_record())
    assert (running.started_at, running.ended_at, running.user) == (AT, None, "1000")
    pending = read_queue_job(
        queue_record(
            job_state=["PENDING"], nodes="", gres_detail=[], node_count=SET | {"number": 3}
        )
    )
    assert (pending.started_at, pending.ended_at) == (None, None)
    assert pending.gpus == (Gpus(gpu_type="h100", count=6),)


def test_gpus_of_a_pending_job_are_those_of_its_node_count() -> None:
    """After a change of the node count TRES keeps the old total: it is read last."""
    changed = queue_record(
        job_state="PENDING", nodes="", gres_detail=[], tres_req_str="cpu=1,gres/gpu=8", node_count=1
    )
    assert sum(gpu.count for gpu in read_queue_job(changed).gpus) == 2
    by_task = changed | {"tres_per_node": "", "tres_per_task": "gres/gpu=1", "tasks": 5}
    assert sum(gpu.count for gpu in read_queue_job(by_task).gpus) == 5
    only_total = changed | {"tres_per_node": ""}
    assert sum(gpu.count for gpu in read_queue_job(only_total).gpus) == 8


def test_a_detail_of_other_nodes_is_not_believed() -> None:
    """One entry for two nodes names nobody's GPUs."""
    held = read_queue_job(queue_record(nodes="n[1-2]")).gpus_by_node
    assert held == ()


def test_a_node_out_of_service_cannot_be_planned_on() -> None:
    """Whether Slurm writes state and flags apart or together; nor one in a state nobody knows."""
    base = {"name": "n1", "gres": "gpu:h100:8", "features": "a,b", "partitions": ["x"]}
    states = [
        (base | {"state": "mixed", "state_flags": ["DRAIN"]}, False),
        (base | {"state": ["DOWN", "NOT_RESPONDING"]}, False),
        (base | {"state": ["IDLE", "PLANNED"], "features": ["a", "b"]}, True),
        (base | {"state": "idle", "state_flags": []}, True),
        (base | {"state": ["IDLE", "CLOUD", "POWERED_DOWN"]}, True),
        *((base | {"state": unknown}, False) for unknown in (["IDLE", "QUARANTINED"], [])),
    ]
    assert all(read_node(record).schedulable is expected for record, expected in states)
    assert {read_node(record).features for record, _expected in states} == {("a", "b")}


def accounting_line(**changes: str) -> str:
    """A line of sacct."""
    row = dict.fromkeys(ACCOUNTING_FIELDS, "") | {
        "JobName": "train",
        "JobIDRaw": "7",
        "JobID": "7",
        "State": "COMPLETED",
        "Submit": "2026-01-05T11:00:00",
        "Start": "2026-01-05T11:30:00",
        "End": "2026-01-05T12:00:00",
        "NodeList": "n1",
        "AllocTRES": "gres/gpu=2",
    }
    return SEPARATOR.join((row | changes).values())


def test_a_jobs_name_may_hold_anything() -> None:
    """Separators of Slurm and line breaks in a name cost no job; what has too much is counted."""
    dropped: Counter[str] = Counter()
    lines = [
        accounting_line(JobName="two\nlines|and a bar"),
        accounting_line() + SEPARATOR,
        accounting_line(JobIDRaw="8"),
        "half a line",
    ]
    rows = rows_of("\n".join(lines), dropped)
    assert [(row["JobName"], row["JobIDRaw"]) for row in rows] == [
        ("two\nlines|and a bar", "7"),
        ("train", "8"),
    ]
    assert dropped == {"bad-accounting-row": 2}


def test_the_stretch_after_a_resize_starts_at_the_resize() -> None:
    """Its Start is still the job's; its Submit is the moment of the change."""
    line = accounting_line(Submit="2026-01-05T11:45:00", State="RUNNING", End="Unknown")
    stretch = read_accounting_row(rows_of(line, Counter())[0])
    assert stretch.started_at == datetime(2026, 1, 5, 11, 45, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "has_ended"),
    [("RUNNING", False), ("SUSPENDED", False), ("RESIZING", True), ("PENDING+REQUEUED", True)],
)
def test_the_end_of_the_window_is_no_end(state: str, has_ended: bool) -> None:
    """24.11's slurmrestd gives a job that runs the end of the window as its end."""
    stretch = read_accounting_row(rows_of(accounting_line(State=state), Counter())[0])
    assert (stretch.ended_at is not None) is has_ended


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"het_job_id": 7}, "heterogeneous"),
        ({"tres_per_socket": "gres:gpu:1"}, "by socket"),
        ({"tres_per_job": "gres:gpu:4"}, "several ways"),
        ({"shared": "none"}, "--exclusive"),
        ({"shared": ["none"]}, "--exclusive"),
    ],
)
def test_a_job_that_no_size_change_reaches_says_why(
    changes: dict[str, object], reason: str
) -> None:
    """Planner and applier refuse it on the same fact."""
    asked = {"tres_per_node": "gres:gpu:h100:4", "batch_flag": True}
    facts = dict(read_queue_job(queue_record(**(asked | changes)), release=(22, 5)).extra)
    said = facts.get("fixed_size", "")
    assert reason in said
    assert bool(said) == bool(reason)
    assert (facts["batch"], facts["slurm_release"]) == ("yes", "22.05")


def test_a_requeued_job_asks_for_the_nodes_of_its_request() -> None:
    """22.05 shows the nodes of its last run until it starts again."""
    waits = {"job_state": "PENDING", "nodes": "", "gres_detail": [], "max_nodes": 0}
    asked = {"tres_per_node": "gres:gpu:2", "node_count": 2, "tres_req_str": "cpu=1,node=1"}
    counts = [
        sum(gpu.count for gpu in read_queue_job(queue_record(**waits, **asked, **further)).gpus)
        for further in ({"restart_cnt": 1}, {"restart_cnt": 0})
    ]
    assert counts == [2, 4]


SIGNAL, APPEND = "its --signal", "its --open-mode=append"
SUBMISSIONS = {
    "sbatch --signal=B:USR1@120 train.sh": SIGNAL,
    "sbatch -p gpu --signal B:USR1@120 train.sh": SIGNAL,
    "sbatch --requeue --open-mode=append train.sh": APPEND,
    "/usr/bin/sbatch --open-mode append --wrap=train": APPEND,
    "sbatch --open-mode=truncate train.sh": "",
    "sbatch --requeue train.sh --signal=USR1": "",
    "sbatch -t60 train.sh --open-mode=append": "",
    "sbatch --wrap=train --signal=USR1": "",
    "sbatch --signalling train.sh": "",
    "sbatch --requeue": "",
    "": "",
}


@pytest.mark.parametrize(("line", "sign"), SUBMISSIONS.items())
def test_a_submission_tells_of_checkpoints_by_its_own_options(line: str, sign: str) -> None:
    """Options of the script itself, and that it may be requeued, tell nothing."""
    assert checkpoint_sign(line) == sign


@pytest.mark.parametrize(
    ("script", "sign"),
    [
        ("#!/bin/sh\n#SBATCH --signal=USR1@60\ntrain", SIGNAL),
        ("#!/bin/sh\n\n# a note\n#SBATCH -N1 --open-mode=append\ntrain", APPEND),
        ("#!/bin/sh\ntrain\n#SBATCH --signal=USR1@60\n", ""),
        ("#!/bin/sh\n#SBATCH -N1 # --signal=USR1\ntrain", ""),
        ("#!/bin/sh\n##SBATCH --signal=USR1\ntrain", ""),
    ],
)
def test_a_script_tells_of_checkpoints_by_its_directives(script: str, sign: str) -> None:
    """Up to the first command, as sbatch reads them."""
    assert checkpoint_sign("sbatch train.sh", script) == sign


def test_no_submit_line_speaks_for_another_job() -> None:
    """A line break in it would begin a row of its own."""
    claim = "7\x1fsbatch a\n8\x1f--signal=USR1\n8\x1fsbatch b\n9\x1fsbatch c"
    assert submit_lines_of(claim) == {"7": "sbatch a", "9": "sbatch c"}
