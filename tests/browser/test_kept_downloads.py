"""A download's number is good for a minute after the page was drawn again or drawing was given up.

The browser asks with the number of the drawing that it shows, which may not be the latest.
"""

import pytest
from beds.small_page import Tab
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

from dashboard.web.kept_downloads import KEPT_SECONDS, PatientFiles

FILE = b"a,b\n1,2\n"


@pytest.mark.browser
def test_a_press_as_the_page_is_drawn_again_gets_its_file(bare_tab: Tab) -> None:
    """The numbers of this drawing and of those before it give the file, again and again."""
    numbers = [bare_tab.file]
    for _ in range(4):
        bare_tab.ask()
        bare_tab.read_page()
        numbers.append(bare_tab.file)
    assert len(set(numbers)) == 5
    assert [bare_tab.fetch(number) for number in numbers * 2] == [FILE] * 10


@pytest.mark.browser
def test_a_press_after_a_drawing_was_given_up_gets_its_file(bare_tab: Tab) -> None:
    """A run that is stopped before the button forgets the number that the page still shows."""
    shown = bare_tab.file
    bare_tab.hold(whole=True)
    bare_tab.ask()  # the run above ends in the card
    bare_tab.let_go()
    while bare_tab.file == shown:
        bare_tab.read_page()
    assert bare_tab.fetch(shown) == FILE


def test_what_nothing_refers_to_is_forgotten_after_a_minute() -> None:
    """The function and the file that it made; what a page refers to stays."""
    now = 0.0
    files = PatientFiles(MemoryMediaFileStorage("/media"), lambda: now)
    gone = files.add_deferred(lambda: FILE, "text/csv", "1", "gone.csv")
    files.clear_session_refs()
    kept = files.add_deferred(lambda: FILE + FILE, "text/csv", "1", "kept.csv")
    made = files.execute_deferred(gone)
    files.remove_orphaned_files()
    now = KEPT_SECONDS - 1
    files.remove_orphaned_files()
    assert files.execute_deferred(gone) == made
    now = KEPT_SECONDS
    files.remove_orphaned_files()
    with pytest.raises(MediaFileStorageError):
        files.execute_deferred(gone)
    assert files.read_file(made.split("/")[-1].split(".")[0]) is not None  # marked first
    files.remove_orphaned_files()
    assert files.read_file(made.split("/")[-1].split(".")[0]) is None
    assert files.execute_deferred(kept)
