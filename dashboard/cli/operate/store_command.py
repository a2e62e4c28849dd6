"""`trimtab store`: its backup, moving it, its newest schema, the roles of its processes."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dashboard.cli.terminal.context import open_for_reading, progress_on_stderr, settings_of
from dashboard.cli.terminal.output import FINDINGS, print_rows, say
from data.base.clock import utc_now
from data.base.errors import StoreBusyError
from data.settings.store import is_postgres_url, store_path
from data.store import open_store
from data.store.handles.backup import back_up
from data.store.handles.backup import restore as restore_store
from data.store.handles.copy_store import TableProof, copy_store
from data.store.handles.remote_store import BACKUP, holder_of
from data.store.record.grants import grants_sql


def copy(options: argparse.Namespace) -> int:
    """Copy a store into an empty one, prove it, and verify the record that arrived."""
    with (
        open_store(options.source, create=False) as source,
        open_store(options.target) as target,
        progress_on_stderr(options) as progress,
    ):
        proofs = copy_store(source, target, progress=progress)
        problems = target.reader.verify_audit()
    _print_proofs(proofs, options)
    for problem in problems:
        print(f"trimtab: the record has a flaw, as it had before: {problem}", file=sys.stderr)
    return FINDINGS if problems else 0


def _print_proofs(proofs: Sequence[TableProof], options: argparse.Namespace) -> None:
    print_rows(
        [asdict(proof) for proof in proofs],
        options.format,
        columns=("table", "rows", "checksum"),
        empty="",
    )


def backup(options: argparse.Namespace) -> int:
    """Write the store into a new file, through the process that holds it where one does."""
    url, file = settings_of(options).settings.store.url, Path(options.file)
    try:
        with (
            open_store(url, create=False) as store,
            progress_on_stderr(options) as progress,
        ):
            proofs = back_up(store, file, progress=progress)
    except StoreBusyError as busy:
        if is_postgres_url(url):
            raise
        holder = holder_of(store_path(url))
        if holder is None:
            raise StoreBusyError(
                f"{busy.message}, which takes no request for a backup",
                "Wait until that command has ended; `trimtab serve` backs up while it runs.",
            ) from busy
        if not holder.greet().get("backs_up"):
            raise StoreBusyError(
                f"{busy.message}, which is of an earlier version of Trimtab",
                "Restart that process, or back up with the version that it runs.",
            ) from busy
        reply = holder.ask("POST", BACKUP, {"file": str(file.absolute())}, seconds=None)
        proofs = tuple(TableProof(**proof) for proof in json.loads(reply))
    _print_proofs(proofs, options)
    return 0


def restore(options: argparse.Namespace) -> int:
    """Make the store of the settings what a backup holds, and verify its record."""
    url = settings_of(options).settings.store.url
    with progress_on_stderr(options) as progress:
        proofs = restore_store(
            Path(options.file), url, replace=options.replace, now=utc_now(), progress=progress
        )
    with open_store(url, create=False) as store:
        problems = store.reader.verify_audit()
    _print_proofs(proofs, options)
    for problem in problems:
        say(f"trimtab: the record has a flaw, as it had before: {problem}", file=sys.stderr)
    return FINDINGS if problems else 0


def migrate(options: argparse.Namespace) -> int:
    """Open the store, which brings it to the newest schema."""
    with open_store(settings_of(options).settings.store.url) as store:
        print(f"schema {store.schema}")
    return 0


def check(options: argparse.Namespace) -> int:
    """Say which acknowledged writes the store lost; with `--accept`, say so no more."""
    with open_for_reading(settings_of(options)) as store:
        losses, problems = store.losses, store.reader.verify_audit()
        for line in (*losses, *problems):
            say(line)
        if options.accept:
            store.accept_losses()
            losses = ()
    if not losses and not problems:
        say("every acknowledged write is there, and the record is whole")
    return FINDINGS if losses or problems else 0


def grants(options: argparse.Namespace) -> int:
    """Print the SQL; its reader runs it as the owner of the database."""
    print(grants_sql(prefix=options.prefix, schema=options.schema), end="")
    return 0
