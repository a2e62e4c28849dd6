"""Selectors of lists: each row once in the order that is asked for, and none that nobody named."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from factories import make_job
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from dashboard.api.http.pagination import PageQuery, page_of
from dashboard.resources.listings import LISTINGS
from dashboard.resources.selection import Selection, selected
from data.base.errors import BadRangeError
from data.facts.jobs import Job

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRow:
    """A row of a list."""

    job_id: str
    node: str
    gpus: float | None
    last_seen_at: datetime


names = st.sampled_from(["", "a", "ab", "b", "é", "\U0001f600", "\ud800", "n@east"])
drawn_rows = st.lists(
    st.builds(
        DrawnRow,
        job_id=names,
        node=names,
        gpus=st.none() | st.floats(-9, 9).map(lambda value: round(value, 1) + 0.0),
        last_seen_at=st.integers(0, 5).map(lambda hours: NOW + timedelta(hours=hours)),
    ),
    max_size=12,
)


def chosen(rows: list[DrawnRow], jobs: dict[str, Job] | None = None, **asked: Any) -> list[Any]:
    """The rows behind their keys; a key is the place in the list."""
    return selected(
        [((place,), row) for place, row in enumerate(rows)],
        Selection(**asked),
        kind=DrawnRow,
        row_of=lambda row: row,
        jobs_of=lambda _ids: jobs or {},
        columns={},
    )


@given(drawn_rows, st.sampled_from(["job_id", "node", "gpus", "last_seen_at"]), st.booleans())
def test_an_order_is_by_its_column_and_pages_lose_nothing(
    rows: list[DrawnRow], column: str, falls: bool
) -> None:
    """Unknown comes last, either way; a cursor leads on behind every row."""
    ordered = chosen(rows, sort=f"{'-' * falls}{column}")
    values = [getattr(row, column) for _key, row in ordered]
    known = [value for value in values if value is not None]
    assert values == [*sorted(known, reverse=falls), *[None] * (len(values) - len(known))]
    assert sorted(key[-1] for key, _row in ordered) == list(range(len(rows)))
    pages, cursor = [], ""
    while True:
        page = page_of(ordered, lambda row: row, PageQuery(limit=2, cursor=cursor))
        pages += page.items
        if page.next is None:
            break
        cursor = page.next
    assert pages == [row for _key, row in ordered]


@given(drawn_rows, names.filter(lambda name: name and name.isprintable()), st.integers(0, 5))
def test_what_is_chosen_is_what_was_named(rows: list[DrawnRow], node: str, hours: int) -> None:
    """By the row's own column, and by the time of it."""
    since = NOW + timedelta(hours=hours)
    kept = [row for _key, row in chosen(rows, node=node, since=since)]
    assert kept == [row for row in rows if row.node == node and row.last_seen_at >= since]


def test_a_row_has_the_names_of_its_job() -> None:
    """What it does not say itself; of a job that nobody knows it has none."""
    rows = [
        DrawnRow(job_id=job_id, node="", gpus=None, last_seen_at=NOW)
        for job_id in ("search/a", "vision/b@east", "")
    ]
    jobs = {
        "search/a": make_job(job_id="search/a", namespace="search", owner="ann"),
        "vision/b@east": make_job(job_id="vision/b@east", namespace="vision", owner="bob"),
    }
    for asked in ({"namespace": "vision"}, {"owner": "bob"}, {"cluster": "east"}):
        assert [row.job_id for _key, row in chosen(rows, jobs, **asked)] == ["vision/b@east"]
    assert chosen(rows, jobs, owner="eve") == []


def test_what_a_list_does_not_have_is_refused() -> None:
    """An empty answer would say that there is none."""
    with pytest.raises(BadRangeError, match="column 'price' of sort"):
        chosen([], sort="price")


@pytest.mark.parametrize("name", sorted(LISTINGS))
def test_every_list_takes_the_same_selectors(name: str, as_: Callable[..., TestClient]) -> None:
    """Each has an answer, or names the columns that there are."""
    for query in (
        "cluster=main%20cluster", "namespace=search", "owner=search", "model=x", "node=y",
        "since=2026-01-01T00:00:00Z", "limit=1", "sort=-nothing",
    ):  # fmt: skip
        answer = as_("vera").get(f"/api/v1/{name}?{query}")
        known = answer.status_code == 200
        assert known or (answer.status_code == 422 and "columns" in answer.json()["hint"]), query
