"""A started server in a folder with settings of Streamlit: it obeys its own settings alone."""

from pathlib import Path

import pytest
from beds.raw_requests import answer
from browser.bed import TRIMTAB, running_server

EVIL = """\
[server]
baseUrlPath = "evil"
enableStaticServing = true
maxMessageSize = 1
[client]
toolbarMode = "developer"
[theme]
base = "dark"
primaryColor = "#ff0000"
[logger]
level = "debug"
"""


@pytest.mark.slow
def test_settings_of_streamlit_in_the_working_directory_are_not_obeyed(tmp_path: Path) -> None:
    """A base path would move every page."""
    folder = tmp_path / ".streamlit"
    folder.mkdir()
    (folder / "config.toml").write_text(EVIL)
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with running_server(url, tmp_path, program=[TRIMTAB]) as server:
        assert answer(server, "/_stcore/health")[0] == 200
        assert answer(server, "/evil/_stcore/health") != answer(server, "/_stcore/health")
        assert "#ff0000" not in answer(server, "/")[1]
