"""Bodies with doubled keys, and seats of the events."""

from collections.abc import Callable

import pytest
from beds.api_clients import problem
from starlette.testclient import TestClient

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("findings/TT-1/decisions", b'{"decision": "snooze", "decision": "approve"}'),
        ("findings/TT-1/decisions", b'{"decision": "approve", "comment": "a", "comment": "b"}'),
        ("stop", b'{"reason": "x", "reason": "y"}'),
        ("stop", b'{"reason": {"a": 1, "a": 2}}'),
        ("tokens", b'{"person": "vera", "role": "viewer", "days": 1, "person": "alex"}'),
    ],
)
def test_a_key_that_is_given_twice_is_refused(
    as_: Callable[..., TestClient], path: str, body: bytes
) -> None:
    """Whichever reader would take the first and whichever the last; nothing is done."""
    found = problem(as_("alex").post(f"/api/v1/{path}", content=body, headers=JSON), 422)
    assert "is given twice" in found["title"]
    assert as_("alex").get("/api/v1/findings/TT-1").json()["finding"]["state"] == "open"
    assert not as_("alex").get("/api/v1/stop").json()["stopped"]
