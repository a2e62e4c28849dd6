"""No download fails because the page is drawn again at the same moment.

A table's file is made when its button is pressed: the browser sends the number that the button got
in the latest drawing and fetches the file that it is then told of. Streamlit (1.67) gives every
button a new number in every drawing of the whole page and forgets the old ones as soon as a run of
any session has ended. A press in between is answered by "Failed to generate file for download": the
page shows the old number until the new drawing has reached the browser, and a run that is given up
for a newer one has forgotten the old numbers before there are new ones.

So what no page refers to any more is kept for another minute.
"""

import time
from collections.abc import Callable, Iterable

from streamlit.runtime import runtime
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorage

KEPT_SECONDS = 60.0


class PatientFiles(MediaFileManager):
    """Files to fetch, and functions that make some; both outlive their last reference a while."""

    def __init__(
        self, storage: MediaFileStorage, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(storage)
        self._clock = clock
        self._unused_since: dict[str, float] = {}

    def remove_orphaned_files(self) -> None:
        """Forget what nothing has referred to for a minute, as of now."""
        with self._lock:
            unused = super()._get_inactive_file_ids() | self._unused_functions()
            now = self._clock()
            self._unused_since = {name: self._unused_since.get(name, now) for name in unused}
        super().remove_orphaned_files()

    def _get_inactive_file_ids(self) -> set[str]:
        return self._past(super()._get_inactive_file_ids())

    def _remove_orphaned_deferred_callables(self) -> None:
        for name in self._past(self._unused_functions()):
            self._drop_deferred_id(name)

    def _unused_functions(self) -> set[str]:
        pages = self._files_by_session_and_coord.values()
        return set(self._deferred_callables).difference(*(page.values() for page in pages))

    def _past(self, unused: Iterable[str]) -> set[str]:
        now = self._clock()
        return {name for name in unused if now - self._unused_since.get(name, now) >= KEPT_SECONDS}


def keep_downloads() -> None:
    """Have Streamlit keep its files in this class, for which it has no setting."""
    setattr(runtime, "MediaFileManager", PatientFiles)  # noqa: B010 - mypy: not exported there
