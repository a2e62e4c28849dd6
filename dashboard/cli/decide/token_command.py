"""`trimtab token make|list|revoke`: tokens of the HTTP API."""

import argparse
import json
import sys
from dataclasses import asdict
from urllib.parse import quote

from dashboard.cli.terminal.context import (
    ask_holder,
    decision_service_of,
    open_for_reading,
    person_of,
    settings_of,
)
from dashboard.cli.terminal.output import print_rows, say
from dashboard.resources.token_requests import NewToken, TokenRow, TokenWish, make_token, token_row
from data.base.errors import ChangeRefusedError
from data.base.rows import columns_of

_TOKENS = "/api/v1/tokens"


def make(options: argparse.Namespace) -> int:
    """Make a token and print its text, which nothing shows again."""
    try:
        wish = TokenWish(person=options.person, role=options.role, days=options.days)
    except ValueError as error:
        raise ChangeRefusedError(
            f"no token can be made for {options.person[:100]!a} that lasts {options.days:g} days",
            "Name who acts by it, and give more than 0 and at most 366 days.",
        ) from error
    with open_for_reading(settings_of(options)) as store:
        answer = ask_holder(options, store, "POST", _TOKENS, wish.model_dump(mode="json"))
        if answer is not None:
            token = NewToken.model_validate_json(answer)
        else:
            token = make_token(decision_service_of(options, store), wish, person_of(options))
    say(
        f"Token {token.token_id} of {wish.person} as {wish.role}, until "
        f"{token.expires_at:%Y-%m-%d %H:%M} UTC. It is shown this once:",
        file=sys.stderr,
    )
    say(token.token)
    return 0


def list_(options: argparse.Namespace) -> int:
    """List every token ever made, without its text."""
    with open_for_reading(settings_of(options)) as store:
        now = store.reader.clock()
        rows = [asdict(token_row(token, now)) for token in store.reader.tokens()]
    print_rows(rows, options.format, columns=columns_of(TokenRow), empty="No token was made yet.")
    return 0


def revoke(options: argparse.Namespace) -> int:
    """Let nobody in by a token any more."""
    with open_for_reading(settings_of(options)) as store:
        answer = ask_holder(options, store, "DELETE", f"{_TOKENS}/{quote(options.id, safe='')}")
        if answer is not None:
            person = json.loads(answer)["person"]
        else:
            service = decision_service_of(options, store)
            person = service.revoke_token(options.id, person_of(options)).person
    say(f"{options.id} of {person} lets nobody in any more")
    return 0
