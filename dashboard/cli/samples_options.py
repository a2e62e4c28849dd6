"""The options of `trimtab samples`; nothing heavy is imported."""

import argparse

from dashboard.cli.commands import add_command
from dashboard.cli.option_types import utc_time


def add_samples(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command that shows what figures are made of."""
    samples = add_command(
        commands,
        "samples",
        ("samples_command", "samples"),
        "what figures are made of: the readings of a GPU, and what they were counted as",
        lists=True,
    )
    samples.add_argument("--gpu", default="", metavar="UUID", help="the board")
    samples.add_argument(
        "--slots",
        action="store_true",
        help="by five minutes: who held the device, for how long, its work and energy",
    )
    samples.add_argument("--job", default="", metavar="ID", help="with --slots: only of this job")
    samples.add_argument(
        "--from", dest="since", type=utc_time, metavar="TIME", help="default: a day before --to"
    )
    samples.add_argument(
        "--to", dest="until", type=utc_time, metavar="TIME", help="default: the newest sample"
    )
