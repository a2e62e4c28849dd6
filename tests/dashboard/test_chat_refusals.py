"""From chats: what looks like an approval and is none, and where answers may go."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from beds.chat_desk import CHAT, SECRET, Desk, opened, slack_server

from dashboard.notify.chat_signing import SeenSignatures, slack_signature
from dashboard.notify.webhook import APPROVE
from data.base.clock import utc_now
from data.base.errors import NotSignedInError


@pytest.mark.parametrize("times", [2, 3])
def test_a_press_with_several_times_is_refused(shut: Desk, times: int) -> None:
    """Whichever of them the signature is of."""
    at, body = str(int(utc_now().timestamp())), b"payload=x"
    headers = [("X-Slack-Signature", slack_signature(SECRET, at, body))]
    headers += [("X-Slack-Request-Timestamp", at)] * times
    answer = shut.client.post("/api/v1/chat/slack", content=body, headers=headers)
    assert (answer.status_code, "not signed" in answer.text) == (401, True)


def test_only_the_one_button_of_a_message_approves(shut: Desk) -> None:
    """Another action with its value does not, nor do two at once, nor more than its value says."""
    value = f"TT-1 {shut.digest['TT-1']}"
    press = {"action_id": APPROVE, "value": value}
    for actions in (
        [press | {"action_id": "open"}], [press, press], [press, {"action_id": "open"}], [],
        [press | {"value": f"{value} please"}], [press | {"value": value[:16]}],
    ):  # fmt: skip
        answer = shut.slack(payload={"actions": actions})
        assert (answer.status_code, answer.json()) == (200, {})
    assert shut.approved() == []


def test_a_guest_of_the_workspace_is_a_member_of_their_own(shut: Desk) -> None:
    """In a channel that two companies share the payload names the host's team beside the user."""
    payload = {"team": {"id": "T01"}, "user": {"id": "U01", "team_id": "T02"}}
    assert "T02/U01 is nobody here" in shut.slack(payload=payload).json()["text"]


def test_a_member_whose_own_team_is_not_told_is_of_the_team_of_the_press(desk: Desk) -> None:
    """As Slack sends it where only one company is."""
    payload = {"team": {"id": "T01"}, "user": {"id": "U01"}}
    assert desk.slack(payload=payload).json()["text"].startswith("TT-1 is approved by ann")


@pytest.mark.parametrize("words", ["do not approve {}", "approve {} please", "approve {:.16}"])
def test_a_message_that_says_more_or_less_approves_nothing(shut: Desk, words: str) -> None:
    """A sentence with the words in it is no approval, and half a digest is none."""
    answer = shut.teams(words.format(f"TT-1 {shut.digest['TT-1']}"))
    assert "To approve, write" in json.dumps(answer.json())
    assert shut.approved() == []


def test_a_message_of_teams_is_taken_once(shut: Desk) -> None:
    """Whatever it said; the same words of another second are another message."""
    at = utc_now()
    statuses = [
        shut.teams("hello", said={"timestamp": (at - timedelta(seconds=ago)).isoformat()})
        for ago in (0, 0, 1)
    ]
    assert [answer.status_code for answer in statuses] == [200, 401, 200]
    assert "sent before" in statuses[1].text


def test_each_chat_is_switched_on_alone(tmp_path: Path) -> None:
    """The secret of one takes nothing from the other."""
    for chat, taken in (
        (replace(CHAT, teams_security_token=""), (200, 404)),
        (replace(CHAT, slack_signing_secret=""), (404, 200)),
    ):
        folder = tmp_path / str(taken[0])
        folder.mkdir()
        with opened(folder, chat) as desk:
            assert (desk.slack().status_code, desk.teams("x").status_code) == taken


def test_no_more_is_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood is refused, and what was taken before it stays refused."""
    monkeypatch.setattr("dashboard.notify.chat_signing._MAX_SEEN", 2)
    seen, now = SeenSignatures(), utc_now()
    seen.take("a", now)
    seen.take("b", now)
    with pytest.raises(NotSignedInError, match="2 requests came"):
        seen.take("c", now)
    with pytest.raises(NotSignedInError, match="sent before"):
        seen.take("a", now)


def test_an_answer_goes_no_further_and_its_address_into_no_log(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has the address can answer; a redirect could lead anywhere."""
    with slack_server() as (address, heard):
        desk.slack(payload={"response_url": address.replace("/answer", "/moved")})
    assert heard == []
    desk.slack("TT-2", payload={"response_url": f"{address}/secret-part"})
    assert "Slack did not take an answer" in caplog.text
    assert "secret-part" not in caplog.text
