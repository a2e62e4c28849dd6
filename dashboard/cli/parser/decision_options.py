"""The options of `findings` and `recommendations`; nothing heavy is imported here."""

import argparse

from dashboard.cli.parser.add_command import add_command, deferred
from dashboard.cli.terminal.option_types import utc_time, watch_seconds
from data.records.findings import DismissalReason

_ID = "its number (TT-12), or the first characters of an id"
_REASONS = [str(reason) for reason in DismissalReason]
_SORTS = ("urgent", "saving", "number", "seen")


def add_decisions(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add what people decide by."""
    _add_findings(commands)
    _add_recommendations(commands)


def _add_findings(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "findings", help="what was found, under numbers that last: list, show, snooze, dismiss"
    )
    parser.set_defaults(run=deferred("decide.finding_commands", "list_"), format="table")
    actions = parser.add_subparsers(metavar="ACTION")
    listing = add_command(
        actions,
        "list",
        ("decide.finding_commands", "list_"),
        "every finding that is not resolved, and where it stands",
        lists=True,
    )
    listing.add_argument("--all", action="store_true", help="the resolved ones too")
    listing.add_argument("--state", help="only this state, such as open or dismissed")
    listing.add_argument("--team", metavar="NAMESPACE", help="only jobs of this namespace")
    listing.add_argument("--kind", metavar="ACTION", help="only this kind, such as fewer-gpus")
    listing.add_argument("--risk", choices=("low", "medium", "high"), help="only this risk")
    listing.add_argument("--sort", choices=_SORTS, default="urgent", help="default %(default)s")
    listing.add_argument(
        "--watch", type=watch_seconds, metavar="SECONDS", help="list again every so often"
    )
    show = add_command(
        actions,
        "show",
        ("decide.finding_commands", "show"),
        "one finding and all that was said of it",
    )
    show.add_argument("id", help=_ID)
    show.add_argument("--format", choices=("table", "json"), default="table")
    for name, summary in (
        ("snooze", "do not propose it before a time"),
        ("dismiss", "reject it, with a reason that is counted"),
        ("reopen", "let it be proposed again"),
    ):
        action = add_command(actions, name, ("decide.finding_commands", name), summary)
        action.add_argument("id", help=_ID, nargs=None if name == "snooze" else "?")
        action.set_defaults(reopens=name == "reopen")
        action.add_argument("--by", required=True, metavar="NAME", help="who decides")
        action.add_argument("--comment", default="", help="why")
        if name == "snooze":
            span = action.add_mutually_exclusive_group(required=True)
            span.add_argument("--days", type=float, help="for so many days")
            span.add_argument(
                "--until", type=utc_time, metavar="TIME", help="until this time (ISO, UTC)"
            )
        if name == "dismiss":
            action.add_argument("--reason", required=True, choices=_REASONS)
            action.add_argument(
                "--matching",
                metavar="PATTERN",
                help="in place of one: all of namespace=search,job=search/*,kind=fewer-gpus",
            )
            action.add_argument(
                "--days", type=float, default=30.0, help="for how long, of a pattern (default 30)"
            )
        if name == "reopen":
            action.add_argument("--matching", metavar="ID", help="end this dismissal by pattern")
    about = "what is dismissed by pattern, and until when"
    add_command(actions, "dismissals", ("decide.dismissal_commands", "list_"), about, lists=True)


def add_tokens(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `trimtab token`."""
    token = commands.add_parser("token", help="tokens of the HTTP API: make, list, revoke")
    token.set_defaults(run=deferred("decide.token_command", "list_"), format="table")
    actions = token.add_subparsers(metavar="ACTION")
    about = "make a token; its text is shown this once"
    make = add_command(actions, "make", ("decide.token_command", "make"), about)
    make.add_argument("--for", dest="person", required=True, metavar="NAME", help="who acts by it")
    make.add_argument(
        "--role",
        choices=("viewer", "owner", "approver"),
        default="viewer",
        help="what it lets them do at most (default %(default)s)",
    )
    make.add_argument("--days", type=float, default=30.0, help="how long it lasts (default 30)")
    about = "every token, without its text"
    add_command(actions, "list", ("decide.token_command", "list_"), about, lists=True)
    about = "let nobody in by a token any more"
    revoke = add_command(actions, "revoke", ("decide.token_command", "revoke"), about)
    revoke.add_argument("id", help="its id")
    for action in (make, revoke):
        action.add_argument("--by", required=True, metavar="NAME", help="the admin who does it")


def _add_recommendations(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "recommendations", help="list, idle, show, approve, reject, apply, roll back, keep"
    )
    parser.set_defaults(run=deferred("decide.recommendation_commands", "list_"), format="table")
    actions = parser.add_subparsers(metavar="ACTION")
    listing = add_command(
        actions,
        "list",
        ("decide.recommendation_commands", "list_"),
        "what is proposed and what became of it",
        lists=True,
    )
    listing.add_argument("--state", help="only this state, such as proposed")
    add_command(
        actions,
        "idle",
        ("decide.recommendation_commands", "idle"),
        "what becomes of the GPUs that jobs hold idle: freed, needed at peaks, or kept and why",
        lists=True,
    )
    target = ("decide.recommendation_commands", "show")
    show = add_command(actions, "show", target, "one recommendation whole: why, evidence, change")
    show.add_argument("id", help=_ID)
    show.add_argument("--format", choices=("table", "json"), default="table")
    for name, module, summary in (
        (
            "approve",
            "decide.recommendation_commands",
            "approve this recommendation, as the newest plan has it",
        ),
        ("reject", "decide.recommendation_commands", "reject it"),
        (
            "apply",
            "decide.apply_commands",
            "apply an approved one; while applying is off, write its change file",
        ),
        ("rollback", "decide.apply_commands", "undo its change"),
        ("keep", "decide.apply_commands", "say that its applied change is to stay"),
    ):
        action = add_command(actions, name, (module, name), summary)
        action.add_argument("id", help=_ID)
        action.add_argument("--by", required=True, metavar="NAME", help="who decides")
        action.add_argument("--comment", default="", help="why")
        if name == "approve":
            words = "look at the target first, print the steps, and approve these alone"
            action.add_argument("--look", action="store_true", help=words)
        if name == "reject":
            action.add_argument("--reason", choices=_REASONS, help="why its finding is dismissed")
        if name == "apply":
            action.add_argument("--file", action="store_true", help="only write the change file")
        if name == "rollback":
            action.add_argument("--undo", action="store_true", help="make the change again")
