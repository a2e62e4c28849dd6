"""`trimtab mcp`: an assistant asks, by the Model Context Protocol on stdin and stdout."""

import argparse
import io
import json
import threading
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout

from dashboard.mcp.tools import Answer, build_server
from data.base.extras import require_extra


def serve_mcp(options: argparse.Namespace) -> int:
    """Answer an assistant until it closes stdin. Errors: SettingsError without the library."""
    require_extra("mcp", "`trimtab mcp` speaks a protocol of others")
    words = [
        word
        for name in ("settings", "store")
        if getattr(options, name)
        for word in (f"--{name}", getattr(options, name))
    ]
    build_server(CommandAnswers(words)).run("stdio")
    return 0


class CommandAnswers:
    """Runs commands in this process, one at a time, and gives what they print."""

    def __init__(self, words: Sequence[str]) -> None:
        self._given = tuple(words)
        self._one_at_a_time = threading.Lock()

    def __call__(self, *words: str, rows: int | None = None) -> Answer:
        """Return the answer of a command, of a list `rows` rows.

        Errors: ToolError with the words of the command, which reach who asks.
        """
        from mcp.server.mcpserver.exceptions import ToolError

        from dashboard.cli import main

        raw, errors = io.BytesIO(), io.StringIO()
        # Some commands write bytes, as files are.
        out = io.TextIOWrapper(raw, "utf-8", errors="surrogatepass", write_through=True)
        with self._one_at_a_time, redirect_stdout(out), redirect_stderr(errors):
            try:
                code = main(["--quiet", *self._given, *words])
            except SystemExit as end:
                code = int(end.code or 0) if isinstance(end.code, int | None) else 1
        printed = raw.getvalue().decode("utf-8", errors="surrogatepass")
        if code not in (0, 3) or not printed:
            raise ToolError(errors.getvalue().strip() or f"the command ended with {code}")
        answer: Answer = {"answer": json.loads(printed)}
        if isinstance(answer["answer"], list) and rows is not None:
            answer = {"answer": answer["answer"][:rows], "total": len(answer["answer"])}
        if note := errors.getvalue().strip():
            answer["note"] = note
        return answer
