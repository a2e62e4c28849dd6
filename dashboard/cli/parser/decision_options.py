"""The options of `findings`, from the table of decisions; nothing heavy is imported here."""

import argparse

from dashboard.cli.parser.add_command import add_command, add_selectors, deferred
from dashboard.cli.parser.former_words import FORMER
from dashboard.cli.terminal.option_types import utc_time, watch_seconds
from dashboard.decisions.decision_table import COMMANDS, DecisionRow, WishKind
from data.records.findings import DismissalReason

_ID = "its number (TT-12), or the first characters of an id"
_REASONS = [str(reason) for reason in DismissalReason]
_SORTS = ("urgent", "saving", "energy", "number", "seen", "newest", "oldest")
_MATCHING = {
    WishKind.REJECT: (
        "PATTERN", "in place of one: all of namespace=search,job=search/*,kind=fewer-gpus"
    ),
    WishKind.REOPEN: ("ID", "end this dismissal by pattern"),
}  # fmt: skip


def add_findings(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `trimtab findings`: what reads, and a command for each decision of the table."""
    parser = commands.add_parser(
        "findings", aliases=(FORMER,), help="what was found, and what people decide about it"
    )
    parser.set_defaults(run=deferred("decide.finding_commands", "list_"), format="table")
    actions = parser.add_subparsers(metavar="ACTION")
    about = "every finding that is not resolved, and where it stands"
    target = ("decide.finding_commands", "list_")
    listing = add_command(actions, "list", target, about, lists=True)
    listing.add_argument("--all", action="store_true", help="the resolved ones too")
    listing.add_argument("--state", help="only this state, such as open or dismissed")
    listing.add_argument("--kind", metavar="ACTION", help="only this kind, such as fewer-gpus")
    listing.add_argument("--risk", choices=("low", "medium", "high"), help="only this risk")
    for name, metavar, about in (
        ("account", "ACCOUNT", "only jobs of this account of their scheduler"),
        ("search", "TEXT", "in number, target, namespace, owner or proposal, in any case"),
    ):
        listing.add_argument(f"--{name}", default="", metavar=metavar, help=about)
    listing.add_argument("--team", default="", metavar="NAMESPACE", help="as --namespace")
    add_selectors(listing, sorts=False)
    listing.add_argument("--sort", choices=_SORTS, default="urgent", help="default %(default)s")
    listing.add_argument(
        "--watch", type=watch_seconds, metavar="SECONDS", help="list again every so often"
    )
    about = "one finding whole: why, its evidence and change, and all that was said of it"
    show = add_command(actions, "show", ("decide.finding_commands", "show"), about)
    show.add_argument("id", help=_ID)
    show.add_argument("--format", choices=("table", "json"), default="table")
    about = "what becomes of the GPUs that jobs hold idle: freed, needed at peaks, or kept and why"
    add_command(actions, "idle", ("decide.finding_commands", "idle"), about, lists=True)
    for row in COMMANDS:
        _add_decision(actions, row)
    about = "what is dismissed by pattern, and until when"
    add_command(actions, "dismissals", ("decide.dismissal_commands", "list_"), about, lists=True)


def _add_decision(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", row: DecisionRow
) -> None:
    """Add the command of a decision: whom it is about, who decides, and the fields it takes."""
    function = "change" if row.changes else row.command
    module = f"decide.{'apply' if row.changes else 'decision'}_commands"
    action = add_command(actions, row.command, (module, function), row.help)
    action.set_defaults(decision=row.wish)
    matching = _MATCHING.get(row.wish)
    action.add_argument("id", help=_ID, nargs="?" if matching else None)
    action.add_argument("--by", required=True, metavar="NAME", help="who decides")
    action.add_argument("--comment", default="", help="why")
    if "reason" in row.fields:
        action.add_argument("--reason", choices=_REASONS, help="why it is dismissed")
    if matching:
        action.add_argument("--matching", metavar=matching[0], help=matching[1])
    if row.wish is WishKind.REJECT:
        action.add_argument(
            "--days", type=float, default=30.0, help="for how long, of a pattern (default 30)"
        )
    if "until" in row.fields:
        span = action.add_mutually_exclusive_group(required=True)
        span.add_argument("--days", type=float, help="for so many days")
        span.add_argument(
            "--until", type=utc_time, metavar="TIME", help="until this time (ISO, UTC)"
        )
    if "change_digest" in row.fields:
        words = "look at the target first, print the steps, and approve these alone"
        action.add_argument("--look", action="store_true", help=words)
    if row.wish is WishKind.APPLY_OR_WRITE:
        words, write = "only write the change file", WishKind.WRITE
        action.add_argument(
            "--file", dest="decision", action="store_const", const=write, help=words
        )


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
