"""Former commands, for one more release: `recommendations`, and an option that went."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

FORMER = "recommendations"
_REMOVED_OPTION = "--backtest"
_REPLACEMENT_HINT = "each forecast has its backtest: `trimtab forecast --format json`"
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


def words_of_today(words: list[str]) -> list[str]:
    """Return the words of a command, those of a former one as today's; say so on stderr.

    Exits with 2 where an option is gone.
    """
    if words[:1] == ["forecast"] and _REMOVED_OPTION in words:
        print(
            f"trimtab: `trimtab forecast {_REMOVED_OPTION}` is gone: {_REPLACEMENT_HINT}",
            file=sys.stderr,
        )
        sys.exit(2)
    if words[:1] != [FORMER]:
        return words
    print(f"`trimtab {FORMER}` is `trimtab findings` now", file=sys.stderr)
    action, rest = words[1:2], words[2:]
    if action == ["rollback"] and "--undo" in rest:
        return ["findings", "reapply", *(word for word in rest if word != "--undo")]
    return ["findings", *(_ACTIONS.get(word, word) for word in action), *rest]
