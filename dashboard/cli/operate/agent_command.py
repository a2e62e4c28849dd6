"""`trimtab agent`: holds power caps on a GPU node, and puts the limits back."""

import argparse
import logging
import os
import signal
import socket
import threading
from pathlib import Path
from types import FrameType

from collectors.nvml.library import nvml_session
from dashboard.apply.power.agent import PowerAgent, run_agent
from dashboard.apply.power.saved_limits import HeldLimits, agent_lock
from dashboard.apply.power.shared_folder import SignedFolder
from dashboard.apply.power.signed_file import read_secret
from dashboard.cli.terminal.output import FINDINGS
from data.base.clock import utc_now
from data.base.errors import SettingsError
from data.settings.all_settings import Settings
from data.settings.load import load_settings

_MIN_POLL_SECONDS = 0.05


def agent(options: argparse.Namespace) -> int:
    """Hold caps until SIGTERM or SIGINT; 3 when limits could not be put back."""
    # Not by dashboard.cli.terminal.context: an agent, started in every prolog, needs no planner.
    path = Path(options.settings) if options.settings else None
    settings = load_settings(path, environ=os.environ).settings
    logging.getLogger("dashboard.apply.power").setLevel(logging.INFO)
    state_file = Path(options.state_file)
    with agent_lock(state_file):
        node = options.node or socket.gethostname().partition(".")[0]
        limits = HeldLimits(state_file)
        power = PowerAgent(node, _exchange(settings, options), limits, clock=utc_now)
        if options.once or options.restore:
            with nvml_session(settings.nvml):
                if options.once:
                    power.step()
                else:
                    power.restore([part for part in options.gpus.split(",") if part])
            return FINDINGS if options.restore and not options.gpus and power.holds_any else 0
        stop = threading.Event()
        _on_end(stop)
        poll = max(options.poll, _MIN_POLL_SECONDS)
        run_agent(power, settings.nvml, stop=stop, poll_seconds=poll)
        return FINDINGS if power.holds_any else 0


def _exchange(settings: Settings, options: argparse.Namespace) -> SignedFolder:
    directory = options.directory or settings.apply_power.directory
    secret_file = options.secret_file or settings.apply_power.secret_file
    if not directory or not secret_file:
        raise SettingsError(
            "the agent needs a folder and a secret",
            "Give --directory and --secret-file, or set apply_power.directory and "
            "apply_power.secret_file.",
        )
    return SignedFolder(Path(directory).expanduser(), read_secret(Path(secret_file).expanduser()))


def _on_end(stop: threading.Event) -> None:
    """Let SIGTERM, SIGINT and SIGHUP end the loop, so that the limits are put back."""

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
