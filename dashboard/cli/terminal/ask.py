"""One way to data for commands that read: the table of resources, of the store or of a server."""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dashboard.cli.terminal.context import asks_a_server, open_for_reading, settings_of
from dashboard.cli.terminal.output import print_json
from dashboard.cli.terminal.remote_server import server_of
from dashboard.common.replay_clock import present
from dashboard.resources.listings import LISTINGS, empty_message
from dashboard.resources.resource import Resource, View, parameters_of
from dashboard.resources.selection import Selection
from data.base.errors import SettingsError
from data.settings.load import LoadedSettings
from data.store import Store

Answer = TypeVar("Answer")
Query = TypeVar("Query", bound=BaseModel)


def view_of(loaded: LoadedSettings, store: Store) -> View:
    """Return a store as its owner sees it."""
    reader = store.reader
    return View(reader=reader, settings=loaded.settings, clock=partial(present, reader))


def answer_of(
    options: argparse.Namespace, resource: Resource[Query, Answer], **values: object
) -> Answer:
    """Return a resource, for a query of these values. Errors: those of its reading."""
    query = query_of(resource.query, values)
    if asks_a_server(options):
        parameters = parameters_of(query)
        answer: Answer = server_of(options).one(resource.name, resource.kind, parameters)
        return answer
    loaded = settings_of(options)
    with open_for_reading(loaded) as store:
        return resource.read(view_of(loaded, store), query)


def print_document(options: argparse.Namespace, name: str, **values: object) -> int:
    """Print an object of a server as JSON: other forms are made of more than it tells.

    Errors: SettingsError for these.
    """
    # With all that they are made of, which other commands do without.
    from dashboard.resources.documents import DOCUMENTS

    if options.format != "json":
        raise SettingsError(
            f"--format {options.format} of it is not to be had with --server",
            "Give --format json.",
        )
    (resource,) = (resource for resource in DOCUMENTS if resource.name == name)
    print_json(answer_of(options, resource, **values))
    return 0


def rows_of(options: argparse.Namespace, name: str, selection: Selection) -> tuple[list[Any], str]:
    """Return the rows of a list, and what is said where there is none. Errors: BadRangeError."""
    listing = LISTINGS[name]
    if asks_a_server(options):
        rows: list[Any] = server_of(options).rows(name, listing.kind, parameters_of(selection))
        return rows, f"The server knows no {name}."
    loaded = settings_of(options)
    with open_for_reading(loaded) as store:
        entries = listing.ordered(view_of(loaded, store), selection)
        text = listing.empty if selection == Selection() else "No row matches."
        empty = "" if entries else empty_message(store.reader, text)
    return [listing.row(entry) for _key, entry in entries], empty


def selection_of(options: argparse.Namespace) -> Selection:
    """Return the selectors of a list's command. Errors: SettingsError."""
    values = vars(options)
    return query_of(Selection, {name: values.get(name) or None for name in Selection.model_fields})


def query_of(kind: type[Query], values: Mapping[str, object]) -> Query:
    """Return a query of the values that are given. Errors: SettingsError naming the option."""
    try:
        return kind.model_validate(
            {name: value for name, value in values.items() if value is not None}
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = " ".join(f"--{part}" for part in first["loc"]).replace("_", "-")
        raise SettingsError(f"{where or 'the query'}: {first['msg']}", "See --help.") from error
