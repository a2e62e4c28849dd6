"""The flag or setting by which each training framework makes a change to how a job is run."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from data.records.memory import MemoryRemedy
from planner.memory.step.training_job import TrainingJob


@cache
def framework_flags() -> Mapping[str, Mapping[str, str]]:
    """Return the rows of framework_flags.toml: by framework, the flag of a remedy or a cause."""
    text = files("planner.memory.watch").joinpath("framework_flags.toml").read_text("utf-8")
    rows = tomllib.loads(text)
    return {name: rows.get(row.pop("like", ""), {}) | row for name, row in rows.items()}


def flag_of(remedy: MemoryRemedy, changed: TrainingJob) -> str:
    """Return the flag that changes a job in its framework, '' where it is not known."""
    flag = framework_flags().get(changed.framework or "", {}).get(remedy, "")
    return flag.replace("{micro_batch}", str(changed.micro_batch))
