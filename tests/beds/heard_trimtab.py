"""A `trimtab` of its own process whose lines a test waits for, on stdout and stderr together.

It is a fork of a process that has imported everything, unless a test asks for the program itself.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL, SIGTERM

from beds.forked_trimtab import Forked, fork_trimtab

PATIENCE = 300
_ROOT = Path(__file__).parents[2]
_START = "from dashboard.cli import program; program()"


class HeardTrimtab:
    """One process, and the lines that it wrote so far."""

    def __init__(self, words: Sequence[str], folder: Path, pipe: Path, script: Path | None) -> None:
        own = {name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB")}
        self._environ = own | {
            "PYTHONPATH": f"{_ROOT}:{_ROOT / 'tests'}",
            "PYTHONUNBUFFERED": "1",
        }
        self._words, self._folder, self._pipe, self._script = words, folder, pipe, script
        self._come = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self.lines: list[str] = []
        self.process: subprocess.Popen[bytes] | Forked

    def start(self, environ: dict[str, str], *, program: bool) -> None:
        """Start it, and hear it from its first line on."""
        os.mkfifo(self._pipe)
        self._reader.start()
        if not program:
            self.process = fork_trimtab(
                self._words,
                script=self._script,
                folder=self._folder,
                environ=self._environ | environ,
                log=self._pipe,
            )
            return
        begin = [str(self._script)] if self._script else ["-c", _START]
        with self._pipe.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, *begin, *self._words],
                cwd=self._folder,
                env=self._environ | environ,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def _read(self) -> None:
        with self._pipe.open(encoding="utf-8") as lines:
            for line in lines:
                self._note(line)
        self._note("(end)")

    def _note(self, line: str) -> None:
        with self._come:
            self.lines.append(line)
            self._come.notify_all()

    @property
    def said(self) -> str:
        """All that it wrote so far."""
        return "".join(self.lines)

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds of what it wrote; it has to come before its end."""
        with self._come:
            self._come.wait_for(lambda: holds() or "(end)" in self.lines, timeout=PATIENCE)
        assert holds(), f"{what} did not come: {self.said}"

    def wait_for(self, text: str) -> None:
        """Wait until a line holds the text."""
        self.wait_until(lambda: text in self.said, repr(text))

    def end(self, number: int = SIGTERM) -> int:
        """Send a signal and give the exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Return the exit code once it has ended."""
        code = self.process.wait(timeout=PATIENCE)
        self._reader.join()
        return code


@contextmanager
def heard_trimtab(
    words: Sequence[str],
    folder: Path,
    pipe: Path,
    *,
    script: Path | None = None,
    program: bool = False,
    **environ: str,
) -> Iterator[HeardTrimtab]:
    """Run `trimtab`, or a script in its place, in a folder; killed if it runs after the block.

    The environment is that of the tests without settings of Trimtab. What it says comes through
    `pipe`, a path where nothing is yet. `program` starts the program in the place of a fork.
    """
    running = HeardTrimtab(words, folder, pipe, script)
    running.start(environ, program=program)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.send_signal(SIGKILL)
        running.ended()
        pipe.unlink()
