"""The limits of this machine's boards as the agent reads them; nothing is set here."""

import json
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = textwrap.dedent(
    """
    import json
    from collectors.nvml.library import nvml_session
    from dashboard.apply.power.board_limits import read_limits
    from data.base.errors import SourceNotConfiguredError, SourceUnreachableError
    from data.settings.sources import NvmlSettings
    try:
        with nvml_session(NvmlSettings()):
            print(json.dumps([[b.least, b.limit, b.default, b.most] for b in read_limits()]))
    except (SourceNotConfiguredError, SourceUnreachableError):
        print("none")
    """
)


def test_real_boards_say_their_range() -> None:
    """Least, set, default and most stand in this order on every board that can be capped."""
    # A process of its own: pynvml keeps the first library that it loads, here the stub.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    if done.stdout.strip() == "none":
        pytest.skip("no NVML here")
    for least, limit, default, most in json.loads(done.stdout):
        assert least <= limit <= most
        assert least <= default <= most
