"""The power agent: it holds what a valid order wants, and puts everything else back."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from beds.nvml import stub_library
from beds.power import NODE, UUID, PowerBed

from dashboard.apply.power.orders import Cap
from dashboard.apply.power.signed_file import NotTrustedError, read_secret
from data.base.clock import utc_now
from data.base.errors import ApplyError

ROOT = Path(__file__).parents[3]


def ask(power: PowerBed, watts: int | None, uuid: str = UUID) -> None:
    """Order a cap."""
    cap = None if watts is None else Cap(gpu_uuid=uuid, watts=watts, job_id="slurm:7")
    power.exchange.set_cap(NODE, uuid, cap, now=power.now, lease=power.lease)


def test_a_cap_is_set_reported_and_taken_back(power: PowerBed) -> None:
    """The report names the range; without the cap the limit found before returns."""
    power.set_by_hand(650_000)
    ask(power, 490)
    board = power.step().boards[0]
    assert (board.limit_watts, board.held_watts, board.error) == (490, 490, "")
    assert (board.least_watts, board.most_watts, board.default_watts) == (200, 700, 700)
    ask(power, None)
    board = power.step().boards[0]
    assert (board.limit_watts, board.held_watts) == (650, None)
    assert json.loads(power.state_file.read_text())["boards"] == {}


def test_a_cap_ends_with_its_lease(power: PowerBed) -> None:
    """Trimtab that no longer renews is Trimtab that no longer wants."""
    ask(power, 490)
    agent = power.agent()
    power.step(agent)
    power.now += power.lease - timedelta(seconds=1)
    power.step(agent)
    assert power.limit_of() == 490_000
    power.now += timedelta(seconds=2)
    assert power.step(agent).note == "the lease has run out"
    assert power.limit_of() == 700_000


def test_renewing_holds_the_caps_of_jobs_that_live(power: PowerBed) -> None:
    """The cap of a job that has ended is not renewed, and a lease that ran out stays so."""
    ask(power, 490)
    agent = power.agent()
    power.step(agent)
    power.now += timedelta(minutes=10)
    assert power.exchange.renew(now=power.now, lease=power.lease, live_jobs={"slurm:7"}) == 1
    power.now += timedelta(minutes=10)
    power.step(agent)
    assert power.limit_of() == 490_000
    assert power.exchange.renew(now=power.now, lease=power.lease, live_jobs={"slurm:8"}) == 0
    power.step(agent)
    assert power.limit_of() == 700_000
    ask(power, 490)
    power.now += power.lease * 2
    assert power.exchange.renew(now=power.now, lease=power.lease, live_jobs={"slurm:7"}) == 0


def test_a_clock_that_is_set_back_prolongs_no_lease(power: PowerBed) -> None:
    """The lease is counted on the clock that only goes forward, too."""
    ask(power, 490)
    agent = power.agent()
    power.step(agent)
    power.now -= timedelta(minutes=4)
    power.passed += power.lease.total_seconds() + 1
    power.step(agent)
    assert power.limit_of() == 700_000


def test_an_order_from_the_future_or_the_past_is_not_obeyed(power: PowerBed) -> None:
    """Played again, an older order is older; one from tomorrow is wrong."""
    ask(power, 490)
    order = (power.shared / "caps" / f"{NODE}.json").read_text()
    ask(power, None)
    agent = power.agent()
    power.step(agent)
    (power.shared / "caps" / f"{NODE}.json").write_text(order)
    assert "older than" in power.step(agent).note
    assert power.limit_of() == 700_000
    power.now -= timedelta(hours=1)
    ask(power, 490)
    power.now -= timedelta(hours=1)
    assert "future" in power.step(power.agent()).note
    assert power.limit_of() == 700_000


@pytest.mark.parametrize("watts", [100, 199, 701, 5000])
def test_a_cap_outside_the_range_is_not_set(power: PowerBed, watts: int) -> None:
    """The board says what it takes; the agent checks before the driver does."""
    ask(power, watts)
    board = power.step().boards[0]
    assert "outside 200-700 W" in board.error
    assert power.limit_of() == 700_000
    assert not power.state_file.exists() or json.loads(power.state_file.read_text())["boards"] == {}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("gpu0 error nvmlDeviceSetPowerManagementLimit 4\n", "NoPermission"),
        ("gpu0 error nvmlDeviceSetPowerManagementLimit 3\n", "NotSupported"),
        ("gpu0 error nvmlDeviceGetPowerManagementLimitConstraints 3\n", "NotSupported"),
        ("gpu0 error nvmlDeviceGetPowerManagementLimit 3\n", "NotSupported"),
        ("gpu0 lost_at nvmlDeviceSetPowerManagementLimit\n", "GpuIsLost"),
    ],
)
def test_what_the_driver_refuses_is_reported(power: PowerBed, lines: str, said: str) -> None:
    """No right, no such feature, or a board off the bus: said, and nothing is taken for set."""
    power.lines = lines
    ask(power, 490)
    report = power.step()
    assert power.limit_of() == 700_000
    told = report.note + "".join(board.error for board in report.boards)
    assert said in told or "not answering" in told


def test_a_lost_board_keeps_no_other_from_being_restored(power: PowerBed) -> None:
    """What cannot be put back now is remembered until the board answers again."""
    power.boards = 2
    ask(power, 490)
    ask(power, 400, "GPU-0001")
    power.step()
    assert (power.limit_of(0), power.limit_of(1)) == (490_000, 400_000)
    power.lines = "gpu0 lost_at nvmlDeviceGetUUID\n"
    power.now += power.lease * 2
    assert "not answering: GPU-0000" in power.step().note
    assert (power.limit_of(0), power.limit_of(1)) == (490_000, 700_000)
    power.lines = ""
    power.step()
    assert power.limit_of(0) == 700_000


def test_a_limit_of_somebody_else_is_left_alone(power: PowerBed) -> None:
    """The agent fights nobody, neither while it holds a cap nor when it lets go."""
    ask(power, 490)
    agent = power.agent()
    power.step(agent)
    power.set_by_hand(300_000)
    assert "somebody else set 300 W" in power.step(agent).boards[0].error
    power.now += power.lease * 2
    power.step(agent)
    assert power.limit_of() == 300_000
    assert not agent.holds_any


def test_a_driver_that_was_reloaded_is_capped_again(power: PowerBed) -> None:
    """A reload sets the default: that is nobody's wish."""
    power.set_by_hand(650_000)
    ask(power, 490)
    agent = power.agent()
    power.step(agent)
    power.set_by_hand(700_000)
    power.step(agent)
    assert power.limit_of() == 490_000
    power.now += power.lease * 2
    power.step(agent)
    assert power.limit_of() == 650_000


def test_a_second_cap_still_goes_back_to_the_first_limit(power: PowerBed) -> None:
    """What is put back is what was found, not a cap of ours."""
    for watts in (600, 490, 550):
        ask(power, watts)
        power.step()
        assert power.limit_of() == watts * 1000
    power.restore()
    assert power.limit_of() == 700_000


def test_only_the_boards_of_a_job_are_restored(power: PowerBed) -> None:
    """An epilog names the GPUs of its job."""
    power.boards = 2
    ask(power, 490)
    ask(power, 400, "GPU-0001")
    power.step()
    power.restore("1")
    assert (power.limit_of(0), power.limit_of(1)) == (490_000, 700_000)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("490", "491"),
        lambda text: text[:-2],
        lambda text: "",
        lambda text: "null",
        lambda text: "[" * 50_000,
        lambda text: text.replace('"signature": "', '"signature": "0'),
        lambda text: "x" * 300_000,
        lambda text: json.dumps({"payload": 7, "signature": None}),
    ],
)
def test_an_order_that_is_not_signed_restores(
    power: PowerBed, change: Callable[[str], str]
) -> None:
    """A forged, cut or foreign file is no order: nothing is held because of it."""
    ask(power, 490)
    power.step()
    path = power.shared / "caps" / f"{NODE}.json"
    path.write_text(change(path.read_text()))
    report = power.step()
    assert report.note
    assert power.limit_of() == 700_000


def test_the_order_of_another_node_and_a_report_are_no_orders(power: PowerBed) -> None:
    """Rightly signed, wrongly placed."""
    ask(power, 490)
    power.exchange.set_cap(
        "n2", UUID, Cap(gpu_uuid=UUID, watts=300, job_id="x"), now=power.now, lease=power.lease
    )
    caps, reports = power.shared / "caps", power.shared / "reports"
    (caps / "n1.json").write_text((caps / "n2.json").read_text())
    assert "order for node 'n2'" in power.step().note
    (caps / "n1.json").write_text((reports / "n1.json").read_text())
    assert "signature" in power.step().note
    (caps / "n1.json").unlink()
    (caps / "n1.json").symlink_to(caps / "n2.json")
    assert "no signed document" in power.step().note
    assert power.limit_of() == 700_000


@pytest.mark.parametrize("node", ["../n1", "", "n1/..", "a" * 300, "n 1"])
def test_a_node_is_no_path(power: PowerBed, node: str) -> None:
    """Node names come from labels."""
    with pytest.raises(NotTrustedError):
        power.exchange.order(node)


def test_a_secret_that_others_can_read_is_refused(power: PowerBed) -> None:
    """So is one that can be guessed."""
    power.secret_file.chmod(0o644)
    with pytest.raises(ApplyError, match="chmod 600"):
        read_secret(power.secret_file)
    power.secret_file.write_text("short")
    power.secret_file.chmod(0o600)
    with pytest.raises(ApplyError, match="shorter than 32"):
        read_secret(power.secret_file)


def test_nothing_is_capped_that_could_not_be_put_back(power: PowerBed) -> None:
    """The state file comes first: without it the limit stays."""
    ask(power, 490)
    agent = power.agent()
    power.state_file.parent.rmdir()
    power.state_file.parent.write_text("in the way")
    with pytest.raises(ApplyError, match="cannot write"):
        power.step(agent)
    assert power.limit_of() == 700_000


def test_a_broken_state_file_stops_the_agent(power: PowerBed) -> None:
    """Guessing a limit is worse than asking a person."""
    power.state_file.parent.mkdir()
    power.state_file.write_text("{half")
    with pytest.raises(ApplyError, match="cannot be read"):
        power.agent()


def command(power: PowerBed, *more: str) -> list[str]:
    """The command line of an agent."""
    settings = power.folder / "trimtab.toml"
    settings.write_text(f'[nvml]\nlibrary = "{stub_library()}"\n')
    main = "from dashboard.cli import program; program()"
    return [
        sys.executable, "-c", main, "--settings", str(settings), "agent",
        "--node", NODE, "--directory", str(power.shared), "--secret-file", str(power.secret_file),
        "--state-file", str(power.state_file), "--poll", "0.1", *more,
    ]  # fmt: skip


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def started(power: PowerBed) -> Iterator[Start]:
    """Starts agents in processes of their own, and leaves none behind."""
    processes: list[subprocess.Popen[str]] = []
    with said(power).open("w") as words:

        def start(*more: str) -> "subprocess.Popen[str]":
            processes.append(
                subprocess.Popen(
                    command(power, *more),
                    env=os.environ | {"PYTHONPATH": str(ROOT)},
                    cwd=ROOT,
                    stderr=words,
                    text=True,
                )
            )
            return processes[-1]

        yield start
        for process in processes:
            process.kill()
            process.wait()


def said(power: PowerBed) -> Path:
    """What the agents of a node said."""
    return power.folder / "agents.log"


def until(holds: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait, or fail when the agent ended."""
    ends = time.monotonic() + 120
    while not holds():
        assert process.poll() is None
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_agent_that_ends_puts_the_limits_back(
    power: PowerBed, started: Start, number: signal.Signals
) -> None:
    """Stopped in any orderly way, it leaves the node as it found it."""
    power.now = utc_now()
    power.play()
    ask(power, 490)
    process = started()
    until(lambda: power.limit_of() == 490_000, process)
    process.send_signal(number)
    assert process.wait(timeout=120) == 0
    assert power.limit_of() == 700_000


def test_a_killed_agent_s_limits_are_put_back_by_the_next(power: PowerBed, started: Start) -> None:
    """SIGKILL leaves the cap; the next start knows it, holds it while wanted, else restores."""
    power.now = utc_now()
    power.play()
    ask(power, 490)
    process = started()
    until(lambda: power.limit_of() == 490_000, process)
    process.kill()
    process.wait()
    assert power.limit_of() == 490_000
    still = replace(power)
    still.now = utc_now()
    still.step()
    assert power.limit_of() == 490_000
    process = started("--restore")
    assert process.wait(timeout=120) == 0
    assert power.limit_of() == 700_000


def test_a_killed_agent_is_followed_by_one_that_restores(power: PowerBed, started: Start) -> None:
    """With no order any more, a plain start is enough."""
    power.now = utc_now()
    power.play()
    ask(power, 490)
    process = started()
    until(lambda: power.limit_of() == 490_000, process)
    process.kill()
    process.wait()
    ask(power, None)
    process = started()
    until(lambda: power.limit_of() == 700_000, process)
    process.terminate()
    assert process.wait(timeout=120) == 0


def test_two_agents_do_not_share_a_node(power: PowerBed, started: Start) -> None:
    """The second would take the first one's caps for the limits found."""
    power.now = utc_now()
    power.play()
    ask(power, 490)
    first = started()
    until(lambda: power.limit_of() == 490_000, first)
    second = started("--once")
    assert second.wait(timeout=120) == 1
    assert "another agent holds" in said(power).read_text()
