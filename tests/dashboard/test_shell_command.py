"""Completion in a real bash."""

import argparse
import shlex
import subprocess
from pathlib import Path

import pytest

from dashboard.cli import main
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
