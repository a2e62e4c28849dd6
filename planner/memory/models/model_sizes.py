"""Public models by name, for jobs that name a model without bringing its config.json."""

import csv
import re
from dataclasses import fields
from functools import cache
from importlib.resources import files

from data.base.errors import ImpossibleProblemError
from planner.memory.models.model_shape import ModelShape


@cache
def known_models() -> dict[str, ModelShape]:
    """Return all shapes of model_sizes.csv by name."""
    flags = {field.name for field in fields(ModelShape) if field.type in (bool, "bool")}
    shapes = {}
    text = files("planner.memory.models").joinpath("model_sizes.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        values = {
            name: bool(int(value)) if name in flags else int(value)
            for name, value in row.items()
            if name not in {"name", "attention", "public_parameters"}
        }
        shapes[row["name"]] = ModelShape(
            name=row["name"],
            attention=row["attention"],
            **values,  # type: ignore[arg-type]
        )
    return shapes


def known_model(name: str) -> ModelShape:
    """Return the shape of a public model.

    An unknown name is refused with the nearest known ones.
    """
    models = known_models()
    key = re.sub(r"[\s_/]+", "-", name.strip().lower())
    if key not in models:
        raise ImpossibleProblemError(
            f"the model {name!r} is not among the known ones",
            f"give its config.json, or one of: {', '.join(sorted(models))}",
        )
    return models[key]
