"""What the buttons of the pages ask of the API: the switch, and approved and applied at once."""

from collections.abc import Callable

from beds.api_clients import problem
from starlette.testclient import TestClient

from data.base.clock import utc_now
from data.store import Store


def test_whoever_is_let_in_stops_applying_and_an_admin_resumes(
    as_: Callable[..., TestClient],
) -> None:
    """Who, when and why are told; nobody without a role may look or stop."""
    address = "/api/v1/stop"
    problem(as_("stranger").post(address, json={}), 403)
    assert as_("vera").get(address).json()["stopped"] is False
    told = as_("search").post(address, json={"reason": "too hot"}).json()
    assert (told["stopped"], told["by"], told["reason"]) == (True, "search", "too hot")
    assert as_("vera").get(address).json() == told
    assert "only admins" in problem(as_("ann").delete(address), 403)["detail"]
    assert as_("alex").delete(address).json()["stopped"] is False


def test_approved_and_applied_by_one_request_is_refused_without_an_applier(
    store: Store, as_: Callable[..., TestClient]
) -> None:
    """Nothing is approved then; a change that was shown may be named."""
    wish = {"decision": "approve-and-apply", "change_digest": "0" * 64}
    said = problem(as_("ann").post("/api/v1/findings/TT-1/decisions", json=wish), 422)
    assert "no applier" in said["detail"]
    assert store.reader.recommendation("TT-1", now=utc_now()).state == "proposed"
