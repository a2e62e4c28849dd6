"""How many changes an hour and how soon after the last, and which change the same fields."""

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from factories import NOW, make_recommendation

from dashboard.apply.guards import why_wait
from dashboard.apply.prepare import _recent, change_of
from dashboard.apply.same_object import others_on
from data.apply_settings import ApplySettings
from data.records.changes import Change, ChangeStep, Target
from data.records.commands import Command, CommandKind, Person
from data.records.lifecycle import State
from data.store.record_json import to_json

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
    held = why_wait(reader, command("new"), limits, NOW)
    if made < limit:
        assert held is None
        return
    assert held is not None
    assert f"{made} changes within the hour" in held.reason
    assert why_wait(reader, command("new"), limits, held.until) is None
    assert why_wait(reader, command("new"), limits, held.until - SECOND) is not None


@pytest.mark.parametrize("minutes", [10.0, 90.0])
def test_a_job_rests_from_its_last_change(minutes: float) -> None:
    """From the newest of its own changes, of whatever kind; those of other jobs do not count."""
    of_job = [
        (command("first", target="j"), NOW - 100 * MINUTE),
        (command("back", target="j", kind=CommandKind.ROLLBACK), NOW - 5 * MINUTE),
        (command("other", target="o"), NOW - MINUTE),
    ]
    limits = ApplySettings(max_per_hour=100, cool_down_minutes=minutes)
    held = why_wait(prepared(*of_job), command("new", target="j"), limits, NOW)
    assert held is not None
    assert held.until == NOW + (minutes - 5) * MINUTE
    assert why_wait(prepared(*of_job), command("new", target="j"), limits, held.until) is None
    assert why_wait(prepared(*of_job), command("new", target="free"), limits, NOW) is None


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
    """Those of jobs before and after it in the alphabet are not its own."""
    wanted = make_recommendation(job_id="b")
    boards = [SimpleNamespace(job_id=name) for name in ("a", "b", "c", "b", "")]
    reader: Any = SimpleNamespace(job=str.upper, gpus=lambda: boards)
    applier: Any = SimpleNamespace(
        look=lambda _recommendation, *, job, gpus: (job, [board.job_id for board in gpus]),
        change_for=lambda recommendation, target: (recommendation.job_id, *target),
    )
    assert change_of(applier, wanted, reader) == ("b", "B", ["b", "b"])


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
    found = others_on(reader, asked, "own", {State.APPLIED})
    assert [entry.command_id for entry in found] == ["other"] * shares
    assert others_on(reader, asked, "own", {State.APPLYING}) == ()
