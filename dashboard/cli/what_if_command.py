"""`trimtab plan --what-if`: a copy of the plan's problem under other settings; nothing is kept."""

import argparse
from dataclasses import asdict
from typing import Any

from dashboard.cli.output import print_json, print_rows
from dashboard.cli.world import open_for_reading, settings_of
from dashboard.what_if import WhatIf, difference_rows, read_basis, what_if

_COLUMNS = ("figure", "unit", "plan in force", "what if", "difference")


def compare(options: argparse.Namespace) -> int:
    """Show what the knobs would change; of a knob that is given twice the last value counts."""
    knobs = dict(options.what_if)
    loaded = settings_of(options)
    settings = loaded.settings
    with open_for_reading(loaded) as store:
        basis = read_basis(store.reader, settings)
    found = what_if(basis, settings, knobs)
    if options.format == "json":
        print_json(what_if_document(found, knobs) | {"plan_id": basis.plan.plan_id})
    else:
        print_rows(difference_rows(found), options.format, columns=_COLUMNS, empty="")
    return 0


def what_if_document(found: WhatIf, knobs: dict[str, float]) -> dict[str, Any]:
    """Return the one object of `--format json`: the knobs, both plans priced alike, the gap."""
    return {
        "knobs": knobs,
        "currency": found.settings.energy.currency,
        "plan_in_force": asdict(found.current),
        "what_if": asdict(found.changed),
        "gap": found.gap_ratio,
        "seconds": found.seconds,
        "jobs_left_out": found.left_out,
    }
