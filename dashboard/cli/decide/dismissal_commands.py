"""`trimtab findings dismiss|reopen --matching` and `findings dismissals`: dismissals by pattern."""

import argparse
from dataclasses import asdict
from datetime import timedelta
from urllib.parse import quote

from pydantic import TypeAdapter

from dashboard.cli.terminal.context import (
    ask_holder,
    decision_service_of,
    open_for_reading,
    person_of,
    settings_of,
)
from dashboard.cli.terminal.output import print_rows, say
from dashboard.common.replay_clock import present
from dashboard.decisions.decision_table import WishKind
from dashboard.decisions.dismissal_requests import (
    DismissalRow,
    DismissalWish,
    dismissal_row,
    make_dismissal,
    stop_dismissal,
)
from dashboard.decisions.dismissals import MAX_DAYS, active_patterns
from data.base.errors import ChangeRefusedError, SettingsError
from data.base.rows import columns_of
from data.records.findings import DismissalReason

_ADDRESS = "/api/v1/dismissals"
_PARTS = ("namespace", "job", "kind")
_ROW = TypeAdapter(DismissalRow)


def one_way(options: argparse.Namespace) -> bool:
    """Return whether a pattern is meant. Errors: SettingsError for a finding and a pattern both."""
    reopens = options.decision is WishKind.REOPEN
    if (options.id is None) == (options.matching is None):
        raise SettingsError(
            "name either one finding or a pattern",
            f"Give TT-12, or --matching {'ID' if reopens else 'namespace=search'}.",
        )
    return options.matching is not None


def _parts(text: str) -> dict[str, str]:
    """Return the parts of namespace=search,job=search/*. Errors: SettingsError."""
    parts: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not (equals and value) or name not in _PARTS or name in parts:
            raise SettingsError(
                f"--matching {text[:100]!a} is no pattern",
                f"Give each of {', '.join(_PARTS)} once at most: namespace=search,kind=fewer-gpus.",
            )
        parts[name] = value
    return parts


def make(options: argparse.Namespace) -> int:
    """Keep from being proposed what matches, until a time."""
    parts = _parts(options.matching)
    if options.reason is None:
        raise SettingsError(
            "a dismissal by pattern needs its reason",
            f"Give --reason with one of {', '.join(DismissalReason)}.",
        )
    if not 0 < options.days <= MAX_DAYS:
        raise ChangeRefusedError(
            f"nothing can be dismissed for {options.days:g} days",
            f"Give more than 0 and at most {MAX_DAYS} days.",
        )
    with open_for_reading(settings_of(options)) as store:
        wish = DismissalWish(
            **parts,
            reason=options.reason,
            until=present(store.reader) + timedelta(days=options.days),
            comment=options.comment,
        )
        answer = ask_holder(options, store, "POST", _ADDRESS, wish.model_dump(mode="json"))
        if answer is not None:
            row = _ROW.validate_json(answer)
        else:
            row = make_dismissal(decision_service_of(options, store), wish, person_of(options))
    say(
        f"{row.id}: {options.matching} is dismissed by {row.by} until "
        f"{row.until:%Y-%m-%d %H:%M} UTC: {row.reason}"
    )
    return 0


def end(options: argparse.Namespace) -> int:
    """Let what a pattern matches be proposed again."""
    with open_for_reading(settings_of(options)) as store:
        address = f"{_ADDRESS}/{quote(options.matching, safe='')}"
        if ask_holder(options, store, "DELETE", address) is None:
            service = decision_service_of(options, store)
            stop_dismissal(service, options.matching, person_of(options))
    say(f"what {options.matching} matches may be proposed again, by the next cycle")
    return 0


def list_(options: argparse.Namespace) -> int:
    """List what is dismissed by pattern now."""
    with open_for_reading(settings_of(options)) as store:
        patterns = active_patterns(store.reader, present(store.reader))
    rows = [asdict(dismissal_row(pattern)) for pattern in patterns]
    empty = "Nothing is dismissed by pattern."
    print_rows(rows, options.format, columns=columns_of(DismissalRow), empty=empty)
    return 0
