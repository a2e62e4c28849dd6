"""The options of `trimtab jobs`; nothing heavy is imported."""

import argparse

JOB_FIELDS = ("namespace", "application", "owner", "user", "state", "kind", "cluster")
JOB_ORDERS = {
    "name": "name",
    "waste": "waste",
    "gpu-hours": "GPU-hours",
    "energy": "energy",
    "last-seen": "last seen",
}
"""Words of the option, and what `data.store.job_sql` calls them."""


def add_job_options(command: argparse.ArgumentParser) -> None:
    """Add what chooses and orders jobs, as the page Jobs has it."""
    command.add_argument("--by", choices=("job", "application"), default="job")
    for name in JOB_FIELDS:
        option = "--team" if name == "namespace" else f"--{name}"
        command.add_argument(
            option, dest=name, default="", metavar=name.upper(), help=f"only this {name}"
        )
    command.add_argument(
        "--search", default="", metavar="TEXT", help="in id, name or owner, in any case"
    )
    command.add_argument("--running", action="store_true", help="only those seen in the last hour")
    command.add_argument(
        "--sort", choices=tuple(JOB_ORDERS), help="the largest first; default name"
    )
    command.add_argument(
        "--use", action="store_true", help="with GPU-hours, utilization and kWh of the last day"
    )
