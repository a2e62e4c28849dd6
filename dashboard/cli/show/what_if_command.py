"""`trimtab plan --what-if`: a copy of the plan's problem under other settings; nothing is kept."""

import argparse

from dashboard.cli.terminal.context import open_for_reading, settings_of
from dashboard.cli.terminal.output import print_json, print_rows
from dashboard.cycle.what_if import difference_rows, in_force, read_basis, what_if, what_if_document

_COLUMNS = ("figure", "unit", "plan in force", "what if", "difference")


def compare(options: argparse.Namespace) -> int:
    """Show what the knobs would change; of a knob that is given twice the last value counts."""
    knobs = dict(options.what_if)
    loaded = settings_of(options)
    settings = loaded.settings
    with open_for_reading(loaded) as store:
        basis = read_basis(store.reader, settings)
    result = what_if(basis, settings, knobs)
    if options.format == "json":
        print_json(what_if_document(result, knobs, in_force(basis)))
    else:
        print_rows(difference_rows(result), options.format, columns=_COLUMNS, empty="")
    return 0
