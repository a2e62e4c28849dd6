"""A model's shape by its public name or from its config.json."""

import json
from pathlib import Path

from data.base.errors import ImpossibleProblemError, scrub
from data.base.files import read_small_file
from planner.memory.models.model_config import ReadModel, shape_from_config
from planner.memory.models.model_sizes import known_model, known_models

_LARGEST = 4 << 20


def read_model(*, name: str, config: str, folder: Path, place: str) -> ReadModel:
    """Return the model of a known name, or of a config.json whose path counts from `folder`.

    `place` says where it was stated. Errors: ImpossibleProblemError.
    """
    if bool(name) == bool(config):
        raise ImpossibleProblemError(
            f"{place} names {'both a known model and a config' if name else 'no model'}",
            'Give name = "llama3-8b" or config = "config.json".',
        )
    if name:
        return ReadModel(shape=known_model(name), assumed=())
    return read_config(folder / config)


def model_of_argument(argument: str) -> ReadModel:
    """Return the model that a command line names: a file, else a public name."""
    path = Path(argument)
    if not path.exists() and argument.strip().lower() in known_models():
        return ReadModel(shape=known_model(argument), assumed=())
    if path.is_dir():
        path = path / "config.json"
    if not path.exists() and not argument.endswith(".json"):
        return ReadModel(shape=known_model(argument), assumed=())
    return read_config(path)


def read_config(path: Path) -> ReadModel:
    """Return the model of a config.json. Errors: ImpossibleProblemError naming file and fault."""
    try:
        body = read_small_file(path, max_bytes=_LARGEST)
    except OSError as error:
        raise ImpossibleProblemError(
            f"cannot read {path}: {error.strerror}", "Give the path of a model's config.json."
        ) from error
    return config_from_text(body, name=path.name)


def config_from_text(body: bytes, *, name: str) -> ReadModel:
    """Return the model of the text of a config.json. Errors: ImpossibleProblemError."""
    if len(body) > _LARGEST:
        raise ImpossibleProblemError(
            f"{scrub(name, limit=80)} is larger than {_LARGEST >> 20} MiB", "Give a config.json."
        )
    try:
        return shape_from_config(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise ImpossibleProblemError(
            f"{scrub(name, limit=80)} is no JSON: {scrub(str(error), limit=120)}",
            "Give the config.json of a Hugging Face model.",
        ) from error
