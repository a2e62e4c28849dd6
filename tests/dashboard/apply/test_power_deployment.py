"""deploy/power: prolog and epilog that hold the agent, manifests that name what exists."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from beds.nvml import stub_library
from beds.power import NODE, UUID, PowerBed

from dashboard.apply.power.orders import Cap
from dashboard.cli.parser.parser import build_parser
from data.base.clock import utc_now

ROOT = Path(__file__).parents[3]
POWER = ROOT / "deploy" / "power"


def run_script(power: PowerBed, name: str, job: str, gpus: str = "0") -> None:
    """Run a script as slurmd does."""
    trimtab = power.folder / "trimtab"
    main = "from dashboard.cli import program; program()"
    settings = power.folder / "trimtab.toml"
    settings.write_text(f'[nvml]\nlibrary = "{stub_library()}"\n')
    trimtab.write_text(
        f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -c '{main}' "
        f"--settings '{settings}' \"$@\" --poll 0.1\n"
    )
    trimtab.chmod(0o755)
    done = subprocess.run(
        [str(POWER / name)],
        env=os.environ
        | {
            "POWER_AGENT_PROGRAM": str(trimtab),
            "POWER_AGENT_EXCHANGE": str(power.shared),
            "POWER_AGENT_SECRET": str(power.secret_file),
            "POWER_AGENT_STATE": str(power.state_file),
            "SLURM_JOB_ID": job,
            "SLURM_JOB_GPUS": gpus,
            "SLURMD_NODENAME": NODE,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_agent_lives_as_long_as_jobs_with_gpus(power: PowerBed) -> None:
    """The first prolog starts it, the last epilog ends it, and the limits are back by then."""
    power.now = utc_now()
    power.play()
    cap = Cap(gpu_uuid=UUID, watts=490, job_id="slurm:7")
    power.exchange.set_cap(NODE, UUID, cap, now=power.now, lease=power.lease)
    try:
        run_script(power, "prolog.sh", "7")
        ends = time.monotonic() + 120
        while power.limit_of() != 490_000:
            assert time.monotonic() < ends, (power.state_file.parent / "agent.log").read_text()
            time.sleep(0.05)
        agent = Path(f"{power.state_file}.lock").read_text()
        run_script(power, "prolog.sh", "8")
        run_script(power, "epilog.sh", "7")
        assert Path(f"{power.state_file}.lock").read_text() == agent
        assert power.limit_of() == 490_000
    finally:
        run_script(power, "epilog.sh", "8")
    assert power.limit_of() == 700_000
    assert Path(f"{power.state_file}.lock").read_text() == ""


@pytest.mark.parametrize("name", ["prolog.sh", "epilog.sh"])
def test_jobs_without_gpus_start_and_restore_nothing(power: PowerBed, name: str) -> None:
    """Most jobs of a node are of no concern to the agent."""
    run_script(power, name, "9", gpus="")
    assert not power.state_file.parent.exists()


@pytest.mark.parametrize(
    "name", ["prolog.sh", "epilog.sh", "trimtab-agent.service", "daemonset.yaml"]
)
def test_every_option_that_is_deployed_exists(name: str) -> None:
    """A renamed option would be found on the nodes only."""
    text = (POWER / name).read_text()
    used = set(re.findall(r"--([a-z][a-z-]*)", re.sub(r"(?m)^#.*$", "", text)))
    agent = build_parser()._subparsers._group_actions[0].choices["agent"]  # type: ignore[union-attr,index]
    assert used - {action.removeprefix("--") for action in agent._option_string_actions} == set()
    assert "trimtab agent" in text or "agent" in used or "PROGRAM" in text or "agent]" in text


def test_the_daemonset_keeps_its_state_on_the_node() -> None:
    """A killed pod's successor must know what to put back, and get the time for it."""
    documents = list(yaml.safe_load_all((POWER / "daemonset.yaml").read_text()))
    pod = next(document for document in documents if document["kind"] == "DaemonSet")["spec"][
        "template"
    ]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["state"]["hostPath"]["path"] == "/var/lib/trimtab-agent"
    assert volumes["secret"]["secret"]["defaultMode"] == 0o400
    assert pod["automountServiceAccountToken"] is False
    assert pod["terminationGracePeriodSeconds"] >= 30
