"""Approvals from Slack and Teams: the published signatures, and everything that is refused."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.api_clients import MINE, PROXY, THEIRS, clients, two_owners
from beds.chat_desk import OBJECT, SECRET, TOKEN, Desk, slack_server
from beds.stores import cycle
from drawn import examples
from factories import make_range
from hostile.payloads import PAYLOADS
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.notify.chat_signing import SeenSignatures, slack_signature, teams_signature
from dashboard.notify.webhook import content_of
from data.base.clock import utc_now
from data.base.errors import NotSignedInError, SettingsError
from data.settings.access import ChatSettings
from data.settings.all_settings import Settings

PUBLISHED = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554"
    b"%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6"
    b"703c"
)
"""The request of Slack's own page on verifying, of 1531420618."""
SIGNED = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"


def test_the_published_request_has_the_published_signature() -> None:
    """Of docs.slack.dev/authentication/verifying-requests-from-slack."""
    assert slack_signature(SECRET, "1531420618", PUBLISHED) == SIGNED
    assert slack_signature(SECRET, "1531420619", PUBLISHED) != SIGNED


def test_teams_signs_as_its_page_says() -> None:
    """RFC 4231, case 1: key 20 times 0b, `Hi There`; key and signature in base64."""
    key = base64.b64encode(b"\x0b" * 20).decode()
    digest = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
    wanted = base64.b64encode(bytes.fromhex(digest)).decode()
    assert teams_signature(key, b"Hi There") == f"HMAC {wanted}"


def test_a_press_approves_what_the_message_showed(desk: Desk) -> None:
    """In the name of the person here; the record says from where."""
    said = desk.slack().json()
    assert said["text"].startswith("TT-1 is approved by ann.")
    assert (said["response_type"], said["replace_original"]) == ("ephemeral", False)
    assert desk.approved() == [("ann", "from slack, as T01/U01")]
    decided = desk.store.reader.approval_row(desk.digest["TT-1"])
    assert json.loads(decided.person)["via"] == "slack"
    again = desk.slack(at=int(utc_now().timestamp()) - 9).json()
    assert again["text"].startswith("TT-1 was not approved")
    assert len(desk.approved()) == 1


def test_a_message_to_the_webhook_approves(desk: Desk) -> None:
    """By finding and what the digest begins with, as the card showed."""
    answer = desk.teams(f"Approve tt-2  {desk.digest['TT-2'][:16]}").json()
    assert "TT-2 is approved by ann" in json.dumps(answer)
    assert answer["type"] == "message"
    assert desk.approved() == [("ann", f"from teams, as {OBJECT}")]
    decided = desk.store.reader.approval_row(desk.digest["TT-2"])
    assert json.loads(decided.person)["via"] == "teams"


def test_a_large_body_is_refused_before_it_is_read(shut: Desk) -> None:
    """The middleware bounds what is sent to any address, signed or not."""
    assert shut.slack(body=b"x" * 65_537).status_code == 413
    assert shut.teams("x" * 65_537).status_code == 413


def test_the_button_of_a_message_is_the_press_that_is_taken(desk: Desk) -> None:
    """What Slack is sent, it sends back."""
    link = f"https://t.example/findings?finding=TT-1&digest={desk.digest['TT-1']}"
    content = content_of(f"a\n{link}", "slack", public_url="https://t.example")
    opens, approves = content["blocks"][1]["elements"]
    assert opens["url"] == link.partition("&")[0]
    assert desk.slack(payload={"actions": [approves]}).json()["text"].startswith("TT-1 is approved")
    card = json.dumps(content_of(f"a\n{link}", "teams", public_url="https://t.example"))
    words = f"approve TT-1 {desk.digest['TT-1'][:16]}"
    assert words in card
    assert "&digest" not in card
    assert "was not approved" in json.dumps(desk.teams(words).json())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"at": 1531420618}, "another time"),
        ({"at": int(datetime(2090, 1, 1, tzinfo=UTC).timestamp())}, "another time"),
        ({"X-Slack-Signature": SIGNED}, "not signed"),
        ({"X-Slack-Signature": "v0="}, "not signed"),
        ({"X-Slack-Request-Timestamp": "1"}, "not signed"),
        ({"at": "now"}, "does not say when"),
        ({"at": "-5"}, "does not say when"),
        ({"at": "1" * 30}, "does not say when"),
    ],
)
def test_what_slack_did_not_send_now_is_refused(
    shut: Desk, changes: dict[str, Any], why: str
) -> None:
    """Forged, late, early or without a time: nothing is read of it."""
    answer = shut.slack(**changes)
    assert answer.status_code == 401, answer.text
    assert why in answer.json()["detail"]
    assert shut.approved() == []


@pytest.mark.parametrize("minutes", [-6, 6, None, "soon", "2026-01-05T12:00:00"])
def test_what_teams_did_not_send_now_is_refused(shut: Desk, minutes: object) -> None:
    """A message says when it was written, under the signature."""
    at = utc_now() + timedelta(minutes=minutes) if isinstance(minutes, int) else minutes
    sent = at.isoformat() if isinstance(at, datetime) else at
    wish = f"approve TT-1 {shut.digest['TT-1']}"
    assert shut.teams(wish, said={"timestamp": sent}).status_code == 401
    assert shut.teams(wish, Authorization="HMAC AAAA").status_code == 401
    assert shut.approved() == []


def test_a_request_is_taken_once(desk: Desk) -> None:
    """Also where the first did nothing; another of the same second is another."""
    at = int(utc_now().timestamp())
    assert desk.slack(user="U09", at=at).status_code == 200
    again = desk.slack(user="U09", at=at)
    assert (again.status_code, again.json()["detail"]) == (401, "the request was sent before")
    assert desk.slack(at=at).status_code == 200
    assert len(desk.approved()) == 1


def test_what_was_seen_is_kept_as_long_as_it_would_be_taken() -> None:
    """And not for ever."""
    seen, now = SeenSignatures(), utc_now()
    seen.take("a", now)
    with pytest.raises(NotSignedInError):
        seen.take("a", now + timedelta(minutes=10))
    seen.take("b", now + timedelta(minutes=10, seconds=1))
    assert list(seen._seen) == ["b"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"user": "U09"}, "is nobody here"),
        ({"user": "U03"}, "vera is viewer"),
        ({"user": "U02", "finding": "TT-2"}, "no recommendation"),
        ({"value": f"TT-1 {'0' * 64}"}, "no recommendation"),
        ({"value": f"TT-1 {THEIRS.digest}"}, "no"),
        ({"payload": {"user": {"id": "U01", "team_id": "T02"}}}, "is nobody here"),
        ({"payload": {"user": {"id": ["U01"]}}}, "is nobody here"),
    ],
)
def test_who_may_not_is_told_why(shut: Desk, changes: dict[str, Any], why: str) -> None:
    """The rights are those of the pages; another workspace's member is another person."""
    answer = shut.slack(**changes)
    assert answer.status_code == 200
    assert why in answer.json()["text"]
    assert "was not approved" in answer.json()["text"]
    assert shut.approved() == []


def test_an_owner_approves_their_own(desk: Desk) -> None:
    """From the chat as on the page."""
    assert desk.slack(user="U02").json()["text"].startswith("TT-1 is approved by search")


def test_a_digest_of_another_finding_is_refused(shut: Desk) -> None:
    """Who reads TT-1 does not approve TT-2."""
    answer = shut.slack(value=f"TT-1 {shut.digest['TT-2']}").json()
    assert "the digest is not of TT-1" in answer["text"]
    assert shut.approved() == []


def test_a_digest_that_is_outdated_is_refused(desk: Desk) -> None:
    """A newer plan proposes something else."""
    savings = replace(MINE.savings, cost=make_range(9999.0, "EUR"))
    cycle(desk.store, 2, replace(MINE, savings=savings), THEIRS, at=utc_now())
    answer = desk.slack().json()
    assert "superseded" in answer["text"]
    assert desk.approved() == []


@pytest.mark.parametrize("start", range(4))
def test_no_hostile_text_approves_or_fails(shut: Desk, start: int) -> None:
    """In every place, signed: an answer in plain words, and nothing decided."""
    for payload in PAYLOADS[start :: 40 if examples(100) == 100 else 80]:
        _hostile(shut, payload.text)


def _hostile(shut: Desk, text: str) -> None:
    answers = [
        shut.slack(value=text), shut.slack(user=text),
        shut.slack(body=text.encode("utf-8", "replace")),
        shut.slack(payload={"actions": [text]}), shut.slack(payload={"type": text}),
        shut.slack(payload={"response_url": text, "user": text}), shut.teams(text),
        shut.teams(f"approve TT-1 {text}"), shut.teams(said={"from": text}),
        shut.teams(said={"text": [text], "from": {"aadObjectId": text}}),
    ]  # fmt: skip
    assert {answer.status_code for answer in answers} <= {200, 401}
    assert shut.approved() == []


@given(body=st.binary(max_size=200), at=st.text(max_size=12), signature=st.text(max_size=80))
@settings(max_examples=examples(50))
def test_no_signature_is_guessed(body: bytes, at: str, signature: str) -> None:
    """Whatever is stated, but the one."""
    from dashboard.notify.chat_signing import require_same

    expected = slack_signature("secret", at.encode("utf-8", "replace").decode(), body)
    stated = signature.encode("latin-1", "replace").decode("latin-1")
    with pytest.raises(NotSignedInError):
        require_same(expected, [stated])
    assert require_same(expected, [expected]) == expected
    with pytest.raises(NotSignedInError):
        require_same(expected, [expected, expected])


def test_it_is_off_by_default(tmp_path: Path) -> None:
    """And where everybody is the admin it cannot be switched on."""
    with two_owners(tmp_path) as store, clients(store, PROXY) as client:
        desk = Desk(client, store)
        assert (desk.slack().status_code, desk.teams("x").status_code) == (404, 404)
    for entry in ({"slack_signing_secret": "x"}, {"teams_security_token": TOKEN}):
        with pytest.raises(SettingsError, match=r"chat\."):
            Settings(chat=ChatSettings(**entry))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"people": "U01=ann"}, {"people": "slack:T01/U01"}, {"people": "slack:T01/U01="},
        {"people": "slack:T01/U01=ann, slack:T01/U01=bob"}, {"teams_security_token": "no base64!"},
    ],
)  # fmt: skip
def test_settings_that_name_nobody_are_refused(wrong: dict[str, str]) -> None:
    """A line with an error would let nobody or the wrong one in."""
    with pytest.raises(SettingsError):
        ChatSettings(**wrong)  # type: ignore[arg-type]


def test_the_person_is_answered_where_slack_takes_it(desk: Desk) -> None:
    """And nowhere else, whatever the payload says."""
    with slack_server() as (address, heard):
        desk.slack(payload={"response_url": address})
        desk.slack("TT-2", payload={"response_url": address.replace("127.0.0.1", "localhost")})
    assert [entry["text"].split(" by ")[0] for entry in heard] == ["TT-1 is approved"]
    assert len(desk.approved()) == 2
