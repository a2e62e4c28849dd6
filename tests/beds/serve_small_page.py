"""A small Streamlit app whose drawing can be held: `serve_small_page.py FOLDER PORT`.

Its card is a fragment with a name and two buttons. While FOLDER has no file `go`, a run stays in
the card, at no point where Streamlit could stop it. What the page hears of the buttons is appended
to the file `heard`. Below the card is a file to download.
"""

import sys
import time
from functools import partial
from pathlib import Path

import streamlit as st
import uvicorn
from streamlit import config
from streamlit.starlette import App

from dashboard.web.frame.action_button import File, PressOutcome, action_button, file_buttons

_PAGE = """
import sys
from pathlib import Path

sys.modules["small_page"].page(Path(__file__).parent)
"""


def page(folder: Path) -> None:
    """Draw the card, and a file to download after it."""
    st.fragment(_card)(folder)
    made = File(
        label="CSV", make=lambda: "a,b\n1,2\n", name="table.csv", kind="text/csv", key="csv"
    )
    file_buttons(made)


def _card(folder: Path) -> None:
    st.text_input("Name", key="name")
    for word in ("approve", "reject"):
        action_button(word, key=word, then=partial(_hear, folder, word))
    (folder / "drawing").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)


def _hear(folder: Path, word: str, _answers: PressOutcome) -> None:
    name = st.session_state["name"]
    with (folder / "heard").open("a", encoding="utf-8") as heard:
        heard.write(f"{word} {name}\n")


if __name__ == "__main__":
    sys.modules["small_page"] = sys.modules["__main__"]
    script = Path(sys.argv[1]) / "page.py"
    script.write_text(_PAGE, encoding="utf-8")
    config.set_option("browser.gatherUsageStats", False)
    uvicorn.run(App(script), port=int(sys.argv[2]), log_level="warning")
