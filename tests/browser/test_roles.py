"""Every role on every page of a real server: what it shows, and which buttons it has."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlencode, urlsplit

import pytest
import requests
from beds.stores import Stores
from browser.test_applying import ApplyingServer, applying_server
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from benchmarks._page_client import address_of
from dashboard.decisions.decision_table import WishKind
from dashboard.web.frame import navigation
from data.base.clock import utc_now
from data.store import open_store

pytestmark = pytest.mark.slow
ROLES = ("none", "viewer", "owner", "approver", "admin")
PAGES = (
    "", "week-ahead", "fleet", "facility", "jobs", "serving", "findings", "over-time", "new_job",
    "costs", "savings", "energy", "reports", "health", "quality", "audit", "settings",
)  # fmt: skip
"""Each tab, and what a page draws only where it is asked for."""
DRAWERS = {"week-ahead": "", "over-time": "findings"}
DECIDING = {"Approve", "Dismiss", "Snooze", "Approve and apply", "Look at the target"}
SUBMITTING = {"Preview", "Submit"}
MAY = {
    "none": set[str](),
    "viewer": set[str](),
    "owner": DECIDING,
    "approver": DECIDING | SUBMITTING,
    "admin": DECIDING | SUBMITTING,
}
OWN_PAGES = {"findings", "jobs", "account"}
"""An owner's pages, which show their own jobs."""


@dataclass
class Drawn:
    """What a session was sent for one page."""

    pages: set[str] = field(default_factory=set)
    buttons: dict[str, str] = field(default_factory=dict)
    lost: bool = False
    raw: bytes = b""

    def take(self, told: ForwardMsg) -> None:
        """Add a message."""
        self.raw += told.SerializeToString()
        self.pages |= {page.url_pathname for page in told.navigation.app_pages}
        self.lost |= told.WhichOneof("type") == "page_not_found"
        element = told.delta.new_element
        if element.HasField("button") and not element.button.disabled:
            self.buttons[element.button.id] = element.button.label
        if element.HasField("bidi_component"):
            said = json.loads(element.bidi_component.json)
            if not said["disabled"]:
                self.buttons[element.bidi_component.id] = said["label"]


@dataclass
class Session:
    """A tab of somebody whom the proxy signed in."""

    connection: ClientConnection

    def draw(self, page: str, press: tuple[str, ...] = (), query: str = "") -> Drawn:
        """Ask for a tab or drawer, with presses of buttons; give what was drawn."""
        asked, told, drawn = BackMsg(), ForwardMsg(), Drawn()
        place, words = (DRAWERS[page], {page: "true"}) if page in DRAWERS else address_of(page)
        asked.rerun_script.page_name = "" if place == "overview" else place
        asked.rerun_script.query_string = "&".join(filter(None, (urlencode(words), query)))
        for button in press:
            answers = {"nonce": button, "done": 1, "refused": [], "by": "admin"}
            said = json.dumps({"answers": answers})
            asked.rerun_script.widget_states.widgets.add(id=button, json_value=said)
        self.connection.send(asked.SerializeToString())
        # A page that sends its reader on ends early, and the other one follows.
        while (
            told.WhichOneof("type") != "script_finished"
            or told.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN
        ):
            told.ParseFromString(self.connection.recv(timeout=120, decode=False))
            drawn.take(told)
        return drawn


@dataclass
class Place:
    """A server with people of every role, and whose jobs its findings are about, by number."""

    applying: ApplyingServer
    group: str
    theirs: set[str]
    others: set[str]
    strangers: set[str]
    own: set[str]

    def headers(self, role: str) -> dict[str, str]:
        """Return what the proxy says of somebody of a role."""
        person = "olga" if role == "owner" else role
        return {"X-Forwarded-User": person, "X-Forwarded-Groups": self.group}

    def post(self, role: str, path: str, wish: dict[str, str]) -> int:
        """Post as a button does; give the status."""
        address = f"{self.applying.server.base}/api/v1/{path}"
        return requests.post(address, json=wish, headers=self.headers(role), timeout=60).status_code

    @contextmanager
    def session(self, role: str) -> Iterator[Session]:
        """Open a tab as the proxy forwards it."""
        with connect(
            f"ws://{urlsplit(self.applying.server.base).netloc}/_stcore/stream",
            subprotocols=[Subprotocol("streamlit")],
            additional_headers=self.headers(role),
            max_queue=None,
            open_timeout=120,
        ) as connection:
            yield Session(connection)


@pytest.fixture(scope="module")
def place(
    stores: Stores, filled_store: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """One server for all; the owner has the jobs of their group."""
    folder = tmp_path_factory.mktemp("roles")
    with stores.copy_of(filled_store, folder) as url, ExitStack() as stack:
        with open_store(url, create=False) as store:
            jobs = {
                stored.reference: store.reader.job(stored.recommendation.job_id)
                for stored in store.reader.recommendations(now=utc_now())
            }
            every = store.reader.jobs()
        owners = {key: job.owner for key, job in jobs.items() if job is not None and job.owner}
        group = min(owners.values())
        theirs = {key for key, owner in owners.items() if owner == group}
        applying = stack.enter_context(
            applying_server(
                url,
                folder,
                TRIMTAB_ACCESS_MODE="proxy",
                TRIMTAB_ACCESS_PROXY_ADDRESSES="127.0.0.1",
                TRIMTAB_ACCESS_VIEWERS="viewer",
                TRIMTAB_ACCESS_OWNERS="olga",
                TRIMTAB_ACCESS_APPROVERS="approver",
                TRIMTAB_ACCESS_ADMINS="admin",
                TRIMTAB_ACCESS_DEFAULT_ROLE="none",
                TRIMTAB_SUBMIT_ENABLED="true",
            )
        )
        others = {key for key, job in jobs.items() if job is not None} - theirs
        own = " ".join(job.job_id for job in every if job.owner == group)
        strangers = {job.job_id for job in every if job.owner != group and job.job_id not in own}
        namespaces = {job.namespace for job in every if job.owner == group}
        yield Place(applying, group, theirs, others, strangers, namespaces | set(own.split()))


def test_the_pages_are_those_of_the_table(place: Place) -> None:
    """Whoever adds a tab adds it here; who sees a part of them is served no other."""
    tabs = {tab.view for row in navigation.PAGES for tab in row.tabs}
    assert tabs == {*PAGES, "overview", "job"} - {"", *DRAWERS}
    for role in ROLES:
        with place.session(role) as session:
            seen = session.draw("").pages
        if role == "owner":
            assert seen == {"", *OWN_PAGES}
        else:
            assert len(seen) == (1 if role == "none" else len(navigation.PAGES))


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_its_buttons_and_no_others(place: Place, role: str) -> None:
    """On every page by its address; other people's recommendations are not sent to an owner."""
    assert place.theirs
    assert place.others
    assert place.strangers
    offered = set[str]()
    with place.session(role) as session:
        for page in PAGES:
            drawn = session.draw(page)
            labels = set(drawn.buttons.values()) & (DECIDING | SUBMITTING | {"Resume applying"})
            assert labels <= MAY[role], page
            offered |= labels
            if role == "none":
                assert b"has no role here" in drawn.raw
                assert drawn.buttons == {}
            if role in ("none", "owner"):
                named = [f"{other} ·" for other in place.others]
                named += [place.applying.jobs[other] for other in place.others]
                named += place.strangers
                assert not [other for other in named if other.encode() in drawn.raw], page
            if role == "owner" and address_of(DRAWERS.get(page, page))[0] in OWN_PAGES:
                assert not drawn.lost, page  # links of mails and pages lead there
                shown = any(word.encode() in drawn.raw for word in place.own)
                # Nothing is applied there, and no engine is read.
                assert shown or page in ("savings", "serving"), page
        # The first finding may be advice, which nobody approves: it depends on the hour.
        panels = {"none": set[str](), "owner": place.theirs}.get(role, place.theirs | place.others)
        for reference in sorted(panels):
            drawn = session.draw("findings", query=f"finding={reference}")
            labels = set(drawn.buttons.values()) & DECIDING
            assert labels <= MAY[role], reference
            offered |= labels
    assert offered >= MAY[role] - SUBMITTING


def test_an_owner_reads_no_cost_of_another_tenant(place: Place) -> None:
    """Not on the page of costs, nor by the address of another tenant or of what nobody held."""
    others = {job.partition("/")[0] for job in place.strangers} - place.own
    assert others
    with place.session("owner") as session:
        for query in ("", "month=last+month", *(f"tenant={name}" for name in sorted(others))):
            raw = session.draw("costs", query=query).raw
            asked = query.partition("tenant=")[2]
            shown = [name for name in others - {asked} if name.encode() in raw]
            assert not shown, query
            assert b"(not allocated)" not in raw
            if asked:
                assert b"no GPU was allocated or watched" in raw
    with place.session("viewer") as session:
        raw = session.draw("costs").raw
    assert sum(name.encode() in raw for name in others) >= 2  # a few jobs have another namespace


@pytest.mark.parametrize("role", ["none", "viewer", "owner"])
def test_a_button_of_somebody_else_does_nothing(place: Place, role: str) -> None:
    """An admin's buttons, pressed and posted in the name of another role: nothing is written."""
    other = min(place.others)
    query = f"finding={other}"
    with place.session("admin") as session:
        buttons = session.draw("findings", query=query).buttons
    forged = tuple(key for key, label in buttons.items() if label in DECIDING)
    assert forged
    with place.session(role) as session:
        session.draw("findings", query=query)
        session.draw("findings", forged, query)
        after = session.draw("findings", query=query)
    later = (utc_now() + timedelta(days=1)).isoformat()
    for kind in WishKind:
        wish = {"decision": str(kind)} | ({"until": later} if kind is WishKind.SNOOZE else {})
        expected = 404 if role == "owner" else 403
        assert place.post(role, f"findings/{other}/decisions", wish) == expected, kind
    jobs = [place.applying.jobs[job] for job in place.others]
    assert not [job for job in jobs if job.encode() in after.raw and role != "viewer"]
    with place.session("admin") as session:
        assert set(session.draw("findings", query=query).buttons) == set(buttons)
    assert not any(place.applying.sent(their) for their in place.theirs | place.others)
