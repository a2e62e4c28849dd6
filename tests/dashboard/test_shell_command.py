"""Completion in a real bash, and the manual page as man and groff read it."""

import argparse
import re
import shlex
import subprocess
from datetime import date
from pathlib import Path

import pytest

from dashboard.cli import main
from dashboard.cli.operate.completion_command import manual_page, parsers_of
from dashboard.cli.parser.add_command import examples
from dashboard.cli.parser.parser import build_parser


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `trimtab completion bash` prints."""
    path = tmp_path_factory.mktemp("completion") / "trimtab"
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("builtins.print", said.append)
        assert main(["completion", "bash"]) == 0
    path.write_text("\n".join(said), encoding="utf-8")
    return path


def completed(script: Path, typed: str, cwd: Path | None = None) -> set[str]:
    """What bash offers for the last word of a line that was typed so far, as Tab asks for it."""
    words = typed.split(" ")
    asked = (
        f"source {shlex.quote(str(script))}\n"
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}\n"
        "$(complete -p trimtab | sed 's/.* -F \\([^ ]*\\) .*/\\1/') trimtab "
        f"{shlex.quote(words[-1])} {shlex.quote(words[-2])}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-euc", asked], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_every_command(script: Path) -> None:
    """`trimtab <Tab>` offers all commands and no other word."""
    (commands,) = (
        action for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )  # fmt: skip
    assert completed(script, "trimtab ") == set(commands.choices)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("trimtab rep", {"report"}),
        ("trimtab report ", {"weekly"}),
        ("trimtab report weekly --fo", {"--format"}),
        ("trimtab report weekly --format ", {"html", "pdf", "md", "json"}),
        ("trimtab store ba", {"backup"}),
        ("trimtab completion ", {"bash", "zsh"}),
    ],
)
def test_bash_completes_what_was_begun(script: Path, typed: str, offered: set[str]) -> None:
    """Commands of commands, options and their choices."""
    assert completed(script, typed) == offered


@pytest.mark.parametrize("typed", ["trimtab --settings tri", "trimtab import tri"])
def test_bash_completes_files_where_a_file_is_meant(
    script: Path, typed: str, tmp_path: Path
) -> None:
    """For options and for arguments."""
    (tmp_path / "trimtab.toml").touch()
    assert completed(script, typed, cwd=tmp_path) == {"trimtab.toml"}


def test_zsh_gets_a_function_of_its_own_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """Its shell reads the first line of a file in its function path."""
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef trimtab\n")


@pytest.mark.slow  # `make check` needs no program of Debian's
def test_the_manual_page_is_read_without_a_complaint_and_is_whole() -> None:
    """Nothing is warned of; every command and option is on the page as it is typed."""
    page = manual_page(build_parser(), made_on=date(2026, 11, 24))
    done = subprocess.run(
        ["groff", "-k", "-man", "-Tutf8", "-ww", "-P-c"], input=page.encode(), capture_output=True,
        check=True,
    )  # fmt: skip
    assert done.stderr == b""
    shown = re.sub(r".\x08", "", done.stdout.decode())
    for parser in parsers_of(build_parser()):
        assert parser.prog in shown
        for action in parser._actions:
            for option in action.option_strings:
                assert option in shown
    assert examples()["savings"][0] in shown
