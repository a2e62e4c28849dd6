"""A small Streamlit app whose drawing can be held: `serve_small_page.py FOLDER PORT`.

Its card is a fragment with a name and two buttons. While FOLDER has no file `go`, a run stays in
the card, at no point where Streamlit could stop it. What the buttons' callbacks hear is appended to
the file `heard`. Below the card is a file to download.
"""

import sys
import time
from pathlib import Path

import streamlit as st
import uvicorn
from streamlit.starlette import App

from dashboard.web.kept_clicks import keep_clicks
from dashboard.web.kept_downloads import keep_downloads

_PAGE = """
import sys
from pathlib import Path

sys.modules["small_page"].page(Path(__file__).parent)
"""


def page(folder: Path) -> None:
    """Draw the card, and a file to download after it."""
    st.fragment(_card)(folder)
    st.download_button("CSV", lambda: "a,b\n1,2\n", "table.csv", on_click="ignore")


def _card(folder: Path) -> None:
    st.text_input("Name", key="name")
    for word in ("approve", "reject"):
        st.button(word, key=word, on_click=_hear, args=(folder, word))
    (folder / "drawing").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)


def _hear(folder: Path, word: str) -> None:
    name = st.session_state["name"]
    with (folder / "heard").open("a", encoding="utf-8") as heard:
        heard.write(f"{word} {name}\n")


if __name__ == "__main__":
    sys.modules["small_page"] = sys.modules["__main__"]
    script = Path(sys.argv[1]) / "page.py"
    script.write_text(_PAGE, encoding="utf-8")
    keep_clicks()
    keep_downloads()
    uvicorn.run(App(script), port=int(sys.argv[2]), log_level="warning")
