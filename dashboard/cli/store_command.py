"""`trimtab store`: moving it, bringing it to the newest schema, the roles of its processes."""

import argparse
import sys
from dataclasses import asdict

from dashboard.cli.list_commands import FINDINGS
from dashboard.cli.output import print_rows
from dashboard.cli.world import progress_on_stderr, settings_of
from data.store import open_store
from data.store.copy_store import copy_store
from data.store.grants import grants_sql


def copy(options: argparse.Namespace) -> int:
    """Copy a store into an empty one, prove it, and verify the record that arrived."""
    with (
        open_store(options.source, create=False) as source,
        open_store(options.target) as target,
        progress_on_stderr(options) as progress,
    ):
        proofs = copy_store(source, target, progress=progress)
        problems = target.reader.verify_audit()
    print_rows(
        [asdict(one) for one in proofs],
        options.format,
        columns=("table", "rows", "checksum"),
        empty="",
    )
    for problem in problems:
        print(f"trimtab: the record has a flaw, as it had before: {problem}", file=sys.stderr)
    return FINDINGS if problems else 0


def migrate(options: argparse.Namespace) -> int:
    """Open the store, which brings it to the newest schema."""
    with open_store(settings_of(options).settings.store.url) as store:
        print(f"schema {store.schema}")
    return 0


def grants(options: argparse.Namespace) -> int:
    """Print the SQL; its reader runs it as the owner of the database."""
    print(grants_sql(prefix=options.prefix, schema=options.schema), end="")
    return 0
