"""Settings of approvals from a chat: off until a secret is set and somebody is named."""

import base64
import binascii
import re
from dataclasses import dataclass

from data.settings.fields import Section, documented, documented_list, require

CHATS: tuple[str, ...] = ("slack", "teams")
_SLACK_HOST = "hooks.slack.com"
_ACCOUNT = re.compile(r"(slack:[A-Z0-9]{2,32}/[A-Z0-9]{2,32}|teams:[0-9a-f-]{36})")


def _accounts(text: str) -> tuple[tuple[str, str], ...]:
    """Return (account, name) of every `account=name` of a list; without `=` the name is ''."""
    found = []
    for part in text.split(","):
        account, _, name = part.strip().partition("=")
        if account or name:
            found.append((account.strip(), name.strip()))
    return tuple(found)


def key_of(token: str) -> bytes:
    """Return the key of a Teams token, which is base64. Errors: ValueError."""
    try:
        return base64.b64decode(token, validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings(Section, name="chat"):
    """Who may approve from Slack or Teams, and the secrets by which these sign what they send."""

    slack_signing_secret: str = documented(
        "", "signing secret of the Slack app; empty: nothing is taken from Slack", secret=True
    )
    slack_answers: str = documented(
        f"https://{_SLACK_HOST}/", "how addresses begin to which answers to a button are posted"
    )
    teams_security_token: str = documented(
        "", "security token of the outgoing webhook; empty: nothing from Teams", secret=True
    )
    people: str = documented_list(
        "",
        "who is who, a list such as slack:T0AB/U0CD=ann@site.example (workspace/member) or "
        "teams:OBJECT-ID=ann@site.example; who is not in it decides nothing",
    )

    def takes(self, chat: str) -> bool:
        """Return whether approvals from slack or teams are taken."""
        secret = self.slack_signing_secret if chat == CHATS[0] else self.teams_security_token
        return bool(secret)

    def person_of(self, account: str) -> str:
        """Return the name here of an account of a chat, '' for one that is not listed."""
        return dict(_accounts(self.people)).get(account, "")

    def _check(self) -> None:
        listed = _accounts(self.people)
        for account, name in listed:
            require(
                bool(_ACCOUNT.fullmatch(account)) and bool(name),
                "chat.people",
                f"{account}={name}",
                "a list of slack:WORKSPACE/MEMBER=name and teams:OBJECT-ID=name",
            )
        self.require(len(dict(listed)) == len(listed), "people", "a list that names nobody twice")
        if self.teams_security_token:
            try:
                known = bool(key_of(self.teams_security_token))
            except ValueError:
                known = False
            require(
                known, "chat.teams_security_token", "***", "the token that Teams showed, base64"
            )
