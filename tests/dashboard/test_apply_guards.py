"""How many changes an hour and how soon after the last, and which change the same fields."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from factories import NOW, make_job, make_journal_row, make_recommendation

from dashboard.apply.worker.guards import apply_hold
from dashboard.apply.worker.prepare import _back, _recent, _require_rights, change_of
from dashboard.apply.worker.same_object import commands_on_same_object
from data.base.errors import ApprovalMissingError, NotAllowedError, StalePlanError
from data.records.changes import Change, ChangeStep, Target
from data.records.commands import Command, CommandKind, Person, Work
from data.records.lifecycle import State
from data.settings.access import AccessSettings
from data.settings.apply import ApplySettings
from data.store.engine.record_json import to_json

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


def command(name: str, **changes: Any) -> Command:
    """An apply of the recommendation of that name."""
    values: dict[str, Any] = {
        "command_id": name,
        "kind": CommandKind.APPLY,
        "digest": name,
        "subject": name,
        "target": name,
        "change_digest": "",
        "person": Person(name="Robin"),
        "asked_at": NOW,
    }
    return Command(**(values | changes))


def prepared(*entries: tuple[Command, datetime]) -> Any:
    """A reader of these commands and when each was prepared."""
    return SimpleNamespace(
        prepared_since=lambda since, *_kind: [entry for entry in entries if entry[1] > since]
    )


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("made", [1, 3, 5])
def test_a_change_waits_until_fewer_than_the_limit_are_within_the_hour(
    limit: int, made: int
) -> None:
    """To the second, also where more were made than the limit of now; rollbacks do not count."""
    times = [NOW - 50 * MINUTE + 7 * number * MINUTE for number in range(made)]
    reader = prepared(
        *((command(f"c{number}"), at) for number, at in enumerate(times)),
        (command("back", kind=CommandKind.ROLLBACK), NOW - MINUTE),
    )
    limits = ApplySettings(max_per_hour=limit, cool_down_minutes=0.0)
    held = apply_hold(reader, command("new"), limits, NOW)
    if made < limit:
        assert held is None
        return
    assert held is not None
    assert f"{made} changes within the hour" in held.reason
    assert apply_hold(reader, command("new"), limits, held.until) is None
    assert apply_hold(reader, command("new"), limits, held.until - SECOND) is not None


@pytest.mark.parametrize("minutes", [10.0, 90.0])
def test_a_job_rests_from_its_last_change(minutes: float) -> None:
    """From the newest of its own changes, of whatever kind; those of other jobs do not count."""
    of_job = [
        (command("first", target="j"), NOW - 100 * MINUTE),
        (command("back", target="j", kind=CommandKind.ROLLBACK), NOW - 5 * MINUTE),
        (command("other", target="o"), NOW - MINUTE),
    ]
    limits = ApplySettings(max_per_hour=100, cool_down_minutes=minutes)
    held = apply_hold(prepared(*of_job), command("new", target="j"), limits, NOW)
    assert held is not None
    assert held.until == NOW + (minutes - 5) * MINUTE
    assert apply_hold(prepared(*of_job), command("new", target="j"), limits, held.until) is None
    assert apply_hold(prepared(*of_job), command("new", target="free"), limits, NOW) is None


@pytest.mark.parametrize("own", ["a", "b", "c"])
def test_a_change_is_measured_against_the_others_of_the_day(own: str) -> None:
    """Not against itself, whatever its digest, nor against what does not stand."""
    names = {"a": State.APPLIED, "b": State.APPLYING, "c": State.APPLIED, "gone": State.REFUSED}
    found = {name: make_recommendation(job_id=f"x/{name}") for name in names}
    reader = SimpleNamespace(
        states=lambda: names,
        prepared_since=lambda _since, _kind: [(command(name), NOW) for name in names],
        recommendations_of=lambda digests, *, now: {
            digest: SimpleNamespace(recommendation=found[digest]) for digest in digests
        },
    )
    task: Any = SimpleNamespace(
        store=SimpleNamespace(reader=reader), clock=lambda: NOW, command=command(own)
    )
    assert [row.job_id for row in _recent(task)] == [f"x/{name}" for name in "abc" if name != own]


def test_an_applier_is_told_of_the_boards_of_the_job_alone() -> None:
    """Those of jobs before and after it in the alphabet are not its own; shared ones are."""
    wanted = make_recommendation(job_id="b")
    boards = [
        SimpleNamespace(job_id=name, holders=(name, *more))
        for name, more in (("a", ()), ("b", ()), ("c", ("b",)), ("b", ("a",)), ("", ()))
    ]
    reader: Any = SimpleNamespace(job=str.upper, gpus=lambda: boards)
    applier: Any = SimpleNamespace(
        look=lambda _recommendation, *, job, gpus: (job, [board.job_id for board in gpus]),
        change_for=lambda recommendation, target: (recommendation.job_id, *target),
    )
    assert change_of(applier, wanted, reader) == ("b", "B", ["b", "c", "b"])


@pytest.mark.parametrize("approver", ["ann", "bob", ""])
def test_four_eyes_hold_when_the_change_is_made(approver: str) -> None:
    """Ann owns the job: what she approved is not made, whoever asks for it; nor what nobody did."""
    job = make_job(owner="ann")
    access = AccessSettings(
        mode="proxy", proxy_addresses="10.0.0.5", approvers="ann,bob,kim", four_eyes=True
    )
    approval = approver and SimpleNamespace(
        person=to_json(Person(name=approver, via="proxy")), decided_by=approver
    )
    reader = SimpleNamespace(job=lambda _name: job, approval_row=lambda _digest: approval or None)
    task: Any = SimpleNamespace(
        settings=lambda: SimpleNamespace(access=access),
        store=SimpleNamespace(reader=reader),
        recommendation=make_recommendation(),
        command=command("new", person=Person(name="kim", via="proxy")),
    )
    if approver == "bob":
        _require_rights(task)
        return
    error = NotAllowedError if approver else ApprovalMissingError
    with pytest.raises(error, match="owns the job" if approver else "nobody approved"):
        _require_rights(task)


@pytest.mark.parametrize("ways", [0, 1, 2, 3])
@pytest.mark.parametrize("known", [True, False])
def test_a_way_back_finds_what_earlier_ways_back_made_of_the_object(ways: int, known: bool) -> None:
    """As a requeue gives a job another identity: the last one that was sent, and no other."""
    made = change("Job", "j", "gpus")
    earlier = [
        replace(made, target=replace(made.target, identity=f"way {number}"))
        for number in range(ways)
    ]
    steps = [[make_journal_row(Work.PREPARED, record=to_json(entry))] for entry in earlier]
    for journal in steps:
        journal.append(make_journal_row(Work.SENDING))
    unsent = replace(made, target=replace(made.target, identity="never sent"))
    task: Any = SimpleNamespace(
        undone_journal=lambda: [make_journal_row(Work.PREPARED, record=to_json(made))],
        earlier_journals=lambda: [
            *steps,
            [make_journal_row(Work.PREPARED, record=to_json(unsent))],
        ],
    )

    def look_again(asked: Change) -> str:
        if asked == made and not known:
            raise StalePlanError("another identity", "")
        return asked.target.identity

    applier: Any = SimpleNamespace(
        look_again=look_again, change_back=lambda undone, target: (undone, target)
    )
    if ways or known:
        assert _back(task, applier) == (made, "1" if known else f"way {ways - 1}")
    else:
        with pytest.raises(StalePlanError):
            _back(task, applier)


def change(kind: str, name: str, *fields: str) -> Change:
    """A change of these fields of an object."""
    steps = tuple(
        ChangeStep(
            verb="patch", target=name, field=field, before="4", after="2", payload="{}", text=""
        )
        for field in fields
    )
    target = Target(kind=kind, name=name, identity="1")
    return Change(recommendation_digest="d", target=target, steps=steps, undo=())


@pytest.mark.parametrize(
    ("other", "shares"),
    [
        (change("Deployment", "b/b", "replicas"), True),
        (change("Deployment", "b/b", "gpus", "replicas"), True),
        (change("Deployment", "b/b", "gpus"), False),
        (change("Deployment", "b/a", "replicas"), False),
        (change("Deployment", "b/c", "replicas"), False),
        (change("Account", "b/b", "replicas"), False),
        (change("Job", "b/b", "replicas"), False),
    ],
)
def test_changes_of_the_same_field_of_the_same_object_meet(other: Change, shares: bool) -> None:
    """Another field, name or kind is another's business; only commands in the states asked for."""
    states = {"own": State.APPLIED, "other": State.APPLIED, "idle": State.APPLIED}
    reader: Any = SimpleNamespace(
        states=lambda: states,
        journal=lambda *, digest, events: (
            [SimpleNamespace(record=to_json(other))] * (digest != "idle")
        ),
        commands=lambda digest: [
            SimpleNamespace(command=command("earlier")),
            SimpleNamespace(command=command(digest)),
        ],
    )
    asked = change("Deployment", "b/b", "replicas", "image")
    found = commands_on_same_object(reader, asked, "own", {State.APPLIED})
    assert [entry.command_id for entry in found] == ["other"] * shares
    assert commands_on_same_object(reader, asked, "own", {State.APPLYING}) == ()
