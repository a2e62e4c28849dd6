"""An event loop for the scripts of a session that opens no descriptor.

Streamlit (1.67) makes one loop for each session, which holds three descriptors, and keeps a closed
tab's session for two minutes and then until another one ends. Scripts need a loop only because some
libraries ask for the current one when they are imported: nothing here waits on a socket in it.
"""

import asyncio
import threading


class _Alarm:
    """What the loop waits with where another has a selector: time, or being woken."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def select(self, timeout: float | None) -> list[object]:
        """Wait that long, or until woken; nothing is ever ready to read."""
        self._woken.wait(timeout)
        self._woken.clear()
        return []

    def wake(self) -> None:
        """End the present wait, or the next one."""
        self._woken.set()


class ScriptLoop(asyncio.BaseEventLoop):
    """Runs tasks, timers and calls from other threads; sockets and processes it has none."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Alarm()

    def _process_events(self, event_list: list[object]) -> None:
        """Take in what became ready: nothing does."""

    def _write_to_self(self) -> None:
        self._selector.wake()
