"""The first five minutes of the demo, as its guide tells them: approve, apply, verified, undone."""

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.forked_trimtab import Forked, fork_trimtab
from beds.ports import free_port
from browser.bed import Visitor, wait_until_ready
from browser.inbox import answer, open_row, panel_of
from playwright.sync_api import expect

from data.records.actions import Action

pytestmark = [pytest.mark.browser, pytest.mark.slow]
_SOON, _PATIENCE = 120_000, 400_000
"""ms; a change is measured a minute after it, on a machine that has nothing else to do."""


@dataclass
class Demo:
    """A running `trimtab demo`, in a folder of its own."""

    base: str
    folder: Path
    log: Path
    process: Forked

    def changes(self) -> list[dict[str, object]]:
        """All that was ever changed in the simulated cluster."""
        path = self.folder / "trimtab" / "demo-cluster.json"
        found: list[dict[str, object]] = json.loads(path.read_text())["changes"]
        return found

    def appliable(self) -> str:
        """The number of the first finding that the simulated cluster can act on.

        What only the owner of a job can do, such as asking for less memory, may stand above it.
        """
        with urllib.request.urlopen(f"{self.base}/api/v1/findings") as told:
            found = json.load(told)["items"]
        return next(
            str(finding["finding"])
            for finding in found
            if "simulated" in Action(finding["action"]).spec.appliers
        )


@contextmanager
def running_demo(folder: Path, *, nodes: int, days: int, **settings: str) -> Iterator[Demo]:
    """Run `trimtab demo` in a folder of its own until the block ends."""
    port, log = free_port(), folder / "demo.log"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB")}
    environ |= {"TRIMTAB_SIMULATED_FLEET_NODES": str(nodes), "XDG_STATE_HOME": str(folder)}
    log.touch()
    process = fork_trimtab(
        ["demo", "--days", str(days), "--port", str(port)],
        script=None, folder=folder, environ=environ | settings, log=log,
    )  # fmt: skip
    running = Demo(f"http://127.0.0.1:{port}", folder, log, process)
    try:
        wait_until_ready(running.base, process, log=log, seconds=300)
        # The pages come first; what these tests do needs the plan.
        give_up_at = time.monotonic() + 600
        while "3/3 " not in log.read_text(encoding="utf-8", errors="replace"):
            assert time.monotonic() < give_up_at, "the demo made no plan"
            time.sleep(0.5)
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=120)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The demo on two nodes, with a Prometheus in the environment that must never be asked."""
    with running_demo(
        tmp_path_factory.mktemp("demo"),
        nodes=2,
        days=3,
        TRIMTAB_PROMETHEUS_URL="http://prometheus.invalid:9090",
        TRIMTAB_APPLY_MAX_NAMESPACE_SHARE_RATIO="1",
    ) as running:
        yield running


def test_the_guide_can_be_hidden_and_called_back(demo: Demo, visitor: Visitor) -> None:
    """One button each; the banner stays, since the cluster stays simulated."""
    visitor.page.set_default_timeout(_SOON)
    visitor.open(demo.base)
    visitor.page.get_by_role("button", name="Hide the guide").click()
    expect(visitor.page.locator(".st-key-guide")).to_have_count(0, timeout=_SOON)
    visitor.go("Account", "Savings")
    expect(visitor.page.locator(".st-key-guide")).to_have_count(0, timeout=_SOON)
    expect(visitor.page.get_by_text("Simulated cluster").first).to_be_visible(timeout=_SOON)
    visitor.page.get_by_role("button", name="Show the guide").click()
    expect(visitor.page.locator(".st-key-guide")).to_be_visible(timeout=_SOON)
    newest = visitor.page.get_by_text(re.compile("As of .* UTC, ")).first.inner_text()
    for _ in range(30):
        visitor.page.wait_for_timeout(1000)
        visitor.page.reload()
        visitor.settle()
        if visitor.page.get_by_text(re.compile("As of .* UTC, ")).first.inner_text() != newest:
            return
    pytest.fail(f"no new sample in 30 s: {newest}")


def test_the_first_five_minutes(demo: Demo, visitor: Visitor) -> None:
    """Guide, approval, one change for two clicks, verified in the ledger, rolled back, audited."""
    visitor.page.set_default_timeout(_SOON)
    visitor.open(demo.base)
    for text in ("Simulated cluster", "The first five minutes", "See what is wasted"):
        expect(visitor.page.get_by_text(text).first).to_be_visible(timeout=_SOON)
    assert demo.changes() == []

    visitor.page.locator(".st-key-guide").get_by_role("link", name="Approve and apply one").click()
    visitor.page.wait_for_url(re.compile("/findings"))
    visitor.settle()
    panel, chosen = open_row(visitor, demo.appliable())
    expect(panel.get_by_text("Applied to the simulated cluster")).to_be_visible(timeout=_SOON)
    panel.get_by_role("button", name="Look at the target").click()
    expect(panel.get_by_text(re.compile("simulated cluster: .* from .* to ")).first).to_be_visible(
        timeout=_SOON
    )
    panel.get_by_role("button", name="Approve and apply").click()
    answer(visitor, name="Robin", comment="try it", clicks=2)
    expect(panel.get_by_text("applied by Robin")).to_be_visible(timeout=_SOON)
    assert len(demo.changes()) == 1

    guide = visitor.page.locator(".st-key-guide")
    guide.get_by_role("link", name="Watch it being verified").click()
    visitor.page.wait_for_url(re.compile("tab=savings"))
    measured = visitor.page.get_by_text(re.compile("1 of 1 applied change measured"))
    expect(measured).to_be_visible(timeout=_PATIENCE)
    expect(guide.get_by_text(re.compile("^Saved .* promised"))).to_be_visible(timeout=_SOON)
    expect(guide.get_by_text("trimtab doctor")).to_be_visible(timeout=_SOON)
    guide.get_by_role("link", name="See what is wasted").click()
    expect(visitor.page.get_by_role("button", name="Show the guide")).to_be_visible(timeout=_SOON)
    expect(guide).to_have_count(0)

    visitor.open(f"{demo.base}/findings?finding={chosen}")
    panel = panel_of(visitor, chosen)
    panel.get_by_role("button", name="Roll back").click()
    answer(visitor, name="Robin")
    expect(panel.get_by_text("rolled-back by Robin")).to_be_visible(timeout=_SOON)
    assert len(demo.changes()) == 2

    visitor.go("Admin", "Audit")
    expect(visitor.page.get_by_text(re.compile("entries, chain intact"))).to_be_visible(
        timeout=_SOON
    )
    visitor.go("Admin", "Health")
    expect(visitor.page.get_by_text("1 of 1 source answered in the last cycle.")).to_be_visible(
        timeout=_SOON
    )

    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(timeout=120) == 0
    assert "Traceback" not in demo.log.read_text()
