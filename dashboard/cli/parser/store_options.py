"""The options of `serve`, and of `store` that it works on; nothing heavy is imported here."""

import argparse

from dashboard.cli.parser.add_command import deferred


def add_serve_options(serve: argparse.ArgumentParser) -> None:
    """Add the options of `serve`."""
    serve.set_defaults(keeps_running=True)
    serve.add_argument(
        "--only",
        choices=("web", "cycle", "apply"),
        help="one part in a process of its own (needs a PostgreSQL store)",
    )
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", help="port to listen on")
    serve.add_argument("--prometheus", metavar="URL", help="read DCGM metrics from this address")


def add_store(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `store` with its actions to the commands."""
    parser = commands.add_parser(
        "store", help="the store itself: back it up, move it, migrate it, its roles"
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    summary = "move a whole store, such as a DuckDB file into a PostgreSQL database or back"
    copy = actions.add_parser("copy", help=summary, description=summary)
    copy.set_defaults(run=deferred("operate.store_command", "copy"))
    copy.add_argument("source", metavar="FROM", help="store address to read")
    copy.add_argument("target", metavar="TO", help="store address to fill; must be empty")
    copy.add_argument("--format", choices=("table", "json", "csv"), default="table")
    summary = "write the store into a new file, also while `trimtab serve` uses it"
    backup = actions.add_parser("backup", help=summary, description=summary)
    backup.set_defaults(run=deferred("operate.store_command", "backup"))
    backup.add_argument("file", metavar="FILE", help="the new file")
    summary = "make the store what a backup holds"
    restore = actions.add_parser("restore", help=summary, description=summary)
    restore.set_defaults(run=deferred("operate.store_command", "restore"))
    restore.add_argument("file", metavar="FILE", help="file of `trimtab store backup`")
    restore.add_argument(
        "--replace", action="store_true", help="move the store that stands there aside"
    )
    for action in (backup, restore):
        action.add_argument("--format", choices=("table", "json", "csv"), default="table")
    summary = "bring the store to the schema of this Trimtab"
    migrate = actions.add_parser("migrate", help=summary, description=summary)
    migrate.set_defaults(run=deferred("operate.store_command", "migrate"))
    summary = "say which acknowledged writes are missing, and whether the record is whole"
    check = actions.add_parser("check", help=summary, description=summary)
    check.set_defaults(run=deferred("operate.store_command", "check"))
    check.add_argument(
        "--accept", action="store_true", help="say no more of the losses found; the record does"
    )
    summary = "print the SQL of a PostgreSQL store's roles: web, cycle, apply"
    grants = actions.add_parser("grants", help=summary, description=summary)
    grants.set_defaults(run=deferred("operate.store_command", "grants"))
    grants.add_argument(
        "--prefix", default="trimtab", help="of the roles' names (default %(default)s)"
    )
    grants.add_argument("--schema", default="public", help="of the tables (default %(default)s)")
