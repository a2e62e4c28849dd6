"""The options of `trimtab plan`; nothing heavy is imported."""

import argparse

KNOBS = ("headroom", "shortfall-price", "churn", "carbon-price", "electricity-price")
"""What `dashboard.what_if` can turn, and the sliders of the page Plan."""


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add whose rows are shown, and what to turn in a copy of the plan's problem."""
    parser.add_argument(
        "--by",
        choices=("job", "node", "tenant", "bound"),
        default="job",
        help="rows of the table: stretches of jobs, nodes, lending, lower bounds",
    )
    parser.add_argument(
        "--what-if",
        dest="what_if",
        metavar="KNOB=VALUE",
        action="append",
        type=_turned,
        help=(
            "solve a copy with this turned, and compare; may be repeated; nothing is kept: "
            + ", ".join(KNOBS)
        ),
    )


def _turned(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals or name not in KNOBS:
        raise argparse.ArgumentTypeError(f"{text!r}: give KNOB=VALUE, of {', '.join(KNOBS)}")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is no number for {name}") from None
