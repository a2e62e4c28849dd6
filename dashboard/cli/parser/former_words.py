"""Former commands, for one more release: `recommendations` is `findings`, two others are gone."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

FORMER = "recommendations"
_GONE = {
    ("manual",): "`trimtab --help` and `trimtab COMMAND --help` say the same",
    ("forecast", "--backtest"): "each forecast has its backtest: `trimtab forecast --format json`",
}
"""The words of a command that went, and what has its answer now."""
_ACTIONS = {"reject": "dismiss", "keep": "accept"}


class CommandWords(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001 - no other way to the words
    """Commands of a parser, to which the words of a former one are those of today."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Let the parser of the command take its words."""
        super().__call__(parser, namespace, words_of_today(list(values or ())), option_string)


def _refusal(former: tuple[str, ...], today: str) -> int:
    print(f"trimtab: `trimtab {' '.join(former)}` is gone: {today}", file=sys.stderr)
    return 2


def words_of_today(words: list[str]) -> list[str]:
    """Return the words of a command, those of a former one as today's; say so on stderr.

    Exits with 2 where the command is gone.
    """
    for former, today in _GONE.items():
        if words[:1] == [former[0]] and {*former} <= {*words}:
            sys.exit(_refusal(former, today))
    if words[:1] != [FORMER]:
        return words
    print(f"`trimtab {FORMER}` is `trimtab findings` now", file=sys.stderr)
    action, rest = words[1:2], words[2:]
    if action == ["rollback"] and "--undo" in rest:
        return ["findings", "reapply", *(word for word in rest if word != "--undo")]
    return ["findings", *(_ACTIONS.get(word, word) for word in action), *rest]
