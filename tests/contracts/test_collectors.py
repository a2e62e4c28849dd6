"""Every registered source exists, is documented, and imports on its own."""

import importlib
from pathlib import Path

import pytest

from collectors import COLLECTORS

DOCS = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "module"), COLLECTORS.items())
def test_a_registered_source_is_a_module_with_a_docstring(name: str, module: str) -> None:
    """A line in the registry stands for a file."""
    assert importlib.import_module(module).__doc__, name


@pytest.mark.parametrize("name", COLLECTORS)
def test_a_registered_source_is_named_in_the_docs(name: str) -> None:
    """A user finds every source."""
    text = "".join(
        path.read_text(encoding="utf-8") for path in (DOCS / "README.md", *DOCS.glob("docs/*.md"))
    )
    assert name in text
