"""Nodes with boards whose limits live in files, for the tests of the power agent."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from beds.nvml import stub_library
from factories import NOW

from collectors.nvml.library import nvml_session
from dashboard.apply.power.agent import PowerAgent
from dashboard.apply.power.orders import NodeReport
from dashboard.apply.power.saved_limits import HeldLimits
from dashboard.apply.power.shared_folder import SignedFolder
from dashboard.apply.power.signed_file import read_secret
from data.settings.sources import NvmlSettings

NODE = "n1"
BOARD = """\
gpu{index} name NVIDIA H100 80GB HBM3
gpu{index} uuid GPU-000{index}
gpu{index} limit_mw {limit}
gpu{index} default_mw 700000
gpu{index} least_mw 200000
gpu{index} most_mw 700000
gpu{index} limit_file {file}
"""
UUID = "GPU-0000"


@dataclass(slots=True)
class PowerBed:
    """A node: its boards, the shared folder, the secret, the state file and a clock to turn."""

    folder: Path
    boards: int = 1
    limit: int = 700_000
    now: datetime = NOW
    passed: float = 0.0
    lines: str = ""
    lease: timedelta = field(default_factory=lambda: timedelta(minutes=15))

    def __post_init__(self) -> None:
        self.secret_file.write_text("s3cret-" * 6)
        self.secret_file.chmod(0o600)

    @property
    def secret_file(self) -> Path:
        """The secret of both sides."""
        return self.folder / "secret"

    @property
    def shared(self) -> Path:
        """The folder of orders and reports."""
        return self.folder / "shared"

    @property
    def state_file(self) -> Path:
        """What the agent must put back."""
        return self.folder / "state" / "limits.json"

    @property
    def scenario(self) -> Path:
        """What the stub of the driver plays."""
        return self.folder / "power.scenario"

    @property
    def exchange(self) -> SignedFolder:
        """The shared folder, opened."""
        return SignedFolder(self.shared, read_secret(self.secret_file))

    def play(self) -> Path:
        """Write what the stub plays and give its path."""
        text = "".join(
            BOARD.format(index=index, limit=self.limit, file=self.folder / f"limit-{index}")
            for index in range(self.boards)
        )
        self.scenario.write_text(text + self.lines)
        return self.scenario

    def limit_of(self, index: int = 0) -> int:
        """The limit that a board holds, mW, whoever set it."""
        path = self.folder / f"limit-{index}"
        if not path.exists():
            return self.limit
        while not (text := path.read_text()):
            continue  # another process is writing it
        return int(text)

    def set_by_hand(self, milliwatts: int, index: int = 0) -> None:
        """A limit that somebody else set."""
        (self.folder / f"limit-{index}").write_text(str(milliwatts))

    def agent(self) -> PowerAgent:
        """An agent as it starts: it knows what its state file says."""
        self.state_file.parent.mkdir(exist_ok=True)
        return PowerAgent(
            NODE,
            self.exchange,
            HeldLimits(self.state_file),
            clock=lambda: self.now,
            monotonic=lambda: self.passed,
        )

    def step(self, agent: PowerAgent | None = None) -> NodeReport:
        """One look of an agent at freshly opened boards."""
        self.play()
        with nvml_session(NvmlSettings(library=str(stub_library()))):
            return (agent or self.agent()).step()

    def restore(self, *only: str) -> NodeReport:
        """What `--restore` does."""
        self.play()
        with nvml_session(NvmlSettings(library=str(stub_library()))):
            return self.agent().restore(only)
