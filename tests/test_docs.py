"""The documents name what exists, and everything that exists."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from dashboard.cli.parser.parser import build_parser
from data.settings.all_settings import Settings
from data.settings.fields import settings_in

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md")])
WRITES_GOLDEN = os.environ.get("TRIMTAB_GOLDEN") == "1"
_SETTINGS_INTRODUCTION = """Written by `make golden`. A setting comes from `trimtab.toml` (or
`--settings FILE`), then from the environment, then from the command line; later wins.
`planning.slot_minutes` is `slot_minutes` under `[planning]` in the file and
`TRIMTAB_PLANNING_SLOT_MINUTES` in the environment. Relative paths in the file count from
its folder. In brackets are default and allowed values; without a default a setting is empty."""
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def commands(parser: argparse.ArgumentParser, name: str = "trimtab") -> Iterator[str]:
    """Every command with its parents, such as `trimtab report weekly`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                yield f"{name} {word}"
                if child.prog.endswith(f" {word}"):  # a former word leads to the same commands
                    yield from commands(child, f"{name} {word}")


def all_text() -> str:
    """Every document in one text."""
    return "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)


def test_every_command_is_documented() -> None:
    """Each command of the command line stands in a document, written as it is typed."""
    text = all_text()
    assert [command for command in commands(build_parser()) if command not in text] == []


def test_every_documented_command_exists() -> None:
    """No document shows a command that the command line lacks."""
    known = {command.split()[1] for command in commands(build_parser())}
    shown = re.findall(r"(?m)(?:^\s*|`)(?:\.venv/bin/)?trimtab ([a-z]+)", all_text())
    assert set(shown) - known == set()


_EACH_COLLECTED = """
import io, json, sys
from contextlib import redirect_stdout
import pytest

codes = []
for words in json.loads(sys.argv[1]):
    with redirect_stdout(io.StringIO()):
        codes.append(int(pytest.main(["--collect-only", "-qq", *words])))
print(json.dumps(codes))
"""


def test_a_quoted_pytest_command_selects_tests() -> None:
    """Who copies it sees tests run; a path with NAME in it stands for one of the reader's own."""
    quoted = sorted(set(re.findall(r"(?m)-m pytest ([^`#\n]*tests/[^`#\n]*)", all_text())))
    chosen = [[word for word in shlex.split(words) if "NAME" not in word] for words in quoted]
    said = subprocess.run(
        [sys.executable, "-c", _EACH_COLLECTED, json.dumps(chosen)],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    # One that selects no test (5) or names no file (4) is corrected in the document.
    assert quoted
    assert dict(zip(quoted, json.loads(said), strict=True)) == dict.fromkeys(quoted, 0)


def settings_page() -> str:
    """The page of settings: a section each, a line a setting."""
    lines = ["# Settings", "", _SETTINGS_INTRODUCTION]
    defaults = Settings()
    for section in fields(Settings):
        own = getattr(defaults, section.name)
        lines += ["", f"## {section.name}", ""]
        for field in settings_in(own):
            value, rule = getattr(own, field.name), field.metadata["limits"].rule()
            rule = re.sub(r"^([\d,.]+) to ", "\\1\N{EN DASH}", rule)
            shown = ", ".join(filter(None, (f"`{value}`" if value not in ("", ()) else "", rule)))
            name = f"`{section.name}.{field.name}`" + (f" ({shown})" if shown else "")
            lines.append(f"* {name}: {field.metadata['meaning']}")
    return "\n".join(lines) + "\n"


def test_the_page_of_settings_is_golden() -> None:
    """docs/settings.md has a line per setting: default, limits, meaning; `make golden`."""
    page = ROOT / "docs" / "settings.md"
    if WRITES_GOLDEN:
        page.write_text(settings_page(), encoding="utf-8")
    told = "docs/settings.md is written from the settings classes: run `make golden`"
    assert page.read_text(encoding="utf-8") == settings_page(), told


def slug(heading: str) -> str:
    """A heading's anchor as Markdown hosts make it."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def test_every_page_stands_in_the_navigation_of_the_site() -> None:
    """`make docs` fails otherwise; mkdocs.yml has five parts."""
    shown = re.findall(r"(?m)^ +- (docs/\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert sorted(shown) == sorted(
        str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")
    )


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)).replace("/", "-")
)
def test_links_inside_the_repository_resolve(document: Path) -> None:
    """A link to a file or a heading of the repository finds it."""
    broken = []
    for link in LINK.findall(document.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists():
            broken.append(link)
        elif anchor:
            headings = re.findall(r"(?m)^#+ (.+)$", target.read_text(encoding="utf-8"))
            if anchor not in {slug(heading) for heading in headings}:
                broken.append(link)
    assert broken == []


def test_every_picture_is_shown() -> None:
    """By the README or a document: what nobody sees is out of date before anybody knows."""
    pictures = {path.name for path in (ROOT / "docs/images").iterdir()}
    text = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert {name for name in pictures if f"images/{name})" not in text} == set()
