"""docker-compose.yml describes services that run: its own commands are started as processes."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.ports import free_ports

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
PROMETHEUS = ROOT / "deploy/prometheus"
SCRAPE = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
OURS = ("fleet", "prometheus", "trimtab")
"""Grafana comes as an image only; tests/test_deploy.py checks what is handed to it."""


def test_the_services_are_those_documented() -> None:
    """The fleet is scraped by Prometheus, which Trimtab reads; pages are published on loopback."""
    assert set(SERVICES) == {*OURS, "grafana"}
    assert SERVICES["fleet"]["command"][:2] == ["trimtab", "demo-exporter"]
    assert SERVICES["trimtab"]["command"][:2] == ["trimtab", "serve"]
    assert SERVICES["prometheus"]["image"].startswith("prom/prometheus:v")
    mounted = [volume.split(":")[0] for volume in SERVICES["prometheus"]["volumes"]]
    assert "./deploy/prometheus/prometheus.yml" in mounted
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(published) == {"trimtab", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_grafana_has_no_password_to_guess() -> None:
    """No account is made and none can sign in; who reaches loopback looks, by that name only."""
    image, _, version = SERVICES["grafana"]["image"].partition(":")
    assert image == "grafana/grafana"
    assert [int(part) for part in version.split(".")] >= [12, 4, 4]
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
    assert environment["GF_SERVER_ENFORCE_DOMAIN"] == "true"
    assert SERVICES["grafana"]["ports"] == [f"{environment['GF_SERVER_DOMAIN']}:3000:3000"]
    assert "PASSWORD" not in str(COMPOSE).upper()


def test_every_image_is_of_one_version() -> None:
    """No tag that moves on to another release; the images of the build can be given by digest."""
    for service in SERVICES.values():
        tag = service.get("image", "built:v0").rpartition(":")[2]
        assert tag.lstrip("v")[0].isdigit(), tag
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert {line.split()[1] for line in lines if line.startswith("FROM ")} == {"${PYTHON_IMAGE}"}


def test_every_mounted_file_exists() -> None:
    """A bind mount of a missing file would become an empty folder."""
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith("./") or (ROOT / source).exists(), source


def test_prometheus_scrapes_the_fleet_and_trimtab() -> None:
    """The scrape targets are the services on the ports of their commands."""
    scraped = {job["job_name"]: job["static_configs"] for job in SCRAPE["scrape_configs"]}
    for job, service in (("dcgm", "fleet"), ("trimtab", "trimtab")):
        command = SERVICES[service]["command"]
        port = command[command.index("--port") + 1]
        assert scraped[job] == [{"targets": [f"{service}:{port}"]}]


def test_the_image_runs_unprivileged_from_the_lock() -> None:
    """The Dockerfile ends as a plain user and installs by hash only."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users[-1] not in ("root", "0")
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert all((ROOT / name).exists() for name in line.split()[1:-1]), line


def test_the_image_runs_for_the_cpu_that_its_code_was_compiled_for() -> None:
    """Code for the builder's own CPU could stop with an illegal instruction, or is never read."""
    stages = (ROOT / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")
    compiling = next(stage for stage in stages if "demo --once" in stage)
    assert "NUMBA_CPU_NAME=generic" in compiling
    assert "NUMBA_CPU_NAME=generic" in stages[-1]
    assert "COPY --from=compiled /compiled/trimtab /opt/compiled" in stages[-1]
    assert "COMPILED_TRIMTAB=/opt/compiled" in stages[-1]


def on_loopback(text: str, ports: dict[str, int]) -> str:
    """Replace a service's address, or its listening address, by one on loopback."""
    for service, number in (("fleet", "9400"), ("prometheus", "9090"), ("trimtab", "8501")):
        text = text.replace(f"{service}:{number}", f"127.0.0.1:{ports[service]}")
        text = text.replace(f"0.0.0.0:{number}", f"127.0.0.1:{ports[service]}")
        if text == number:
            text = str(ports[service])
    return "127.0.0.1" if text == "0.0.0.0" else text


@contextlib.contextmanager
def process(
    arguments: list[str], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service, its output in a file of `folder`; end it on leaving."""
    with (
        folder / f"{Path(arguments[0]).name}-{arguments[1].strip('-').partition('=')[0]}.log"
    ).open("wb") as log:
        running = subprocess.Popen(
            arguments, cwd=folder, stdout=log, stderr=log, env=os.environ | environment
        )
        try:
            yield running
        finally:
            if running.poll() is None:
                running.send_signal(signal.SIGTERM)
            try:
                running.wait(120)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def answer(url: str, running: subprocess.Popen[bytes], *, seconds: float = 300) -> str:
    """The first successful answer of `url`; fails when the process ends or time runs out."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert running.poll() is None, f"{running.args} ended with {running.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return str(response.read().decode())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer within {seconds} s")


@pytest.mark.prometheus
def test_the_services_work_together(tmp_path: Path) -> None:
    """Fleet, Prometheus and Trimtab, by their own commands on loopback, carry samples through."""
    ports = dict(zip(OURS, free_ports(len(OURS)), strict=True))
    trimtab = str(Path(sys.executable).with_name("trimtab"))
    store = f"duckdb:///{tmp_path}/trimtab.duckdb"
    config = on_loopback((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"), ports)
    shutil.copy(PROMETHEUS / "trimtab-alerts.yml", tmp_path)
    (tmp_path / "prometheus.yml").write_text(config.replace("interval: 15s", "interval: 1s")
                                             .replace("timeout: 10s", "timeout: 1s"))  # fmt: skip
    replaced = {
        "/etc/prometheus/prometheus.yml": str(tmp_path / "prometheus.yml"),
        "/prometheus": str(tmp_path / "tsdb"),
    }

    def command(service: str) -> list[str]:
        words = [on_loopback(word, ports) for word in SERVICES[service]["command"]]
        for place, here in replaced.items():
            words = [
                f"{word.partition('=')[0]}={here}" if word.partition("=")[2] == place else word
                for word in words
            ]
        return [trimtab, *words[1:]] if words[0] == "trimtab" else ["prometheus", *words]

    environment = {
        name: value.replace("/var/lib/trimtab", str(tmp_path))
        for name, value in SERVICES["trimtab"]["environment"].items()
    }
    # A fleet scraped for seconds has no sample on a 60 s grid yet.
    environment["TRIMTAB_PROMETHEUS_STEP_SECONDS"] = "1"
    environment["TRIMTAB_PROMETHEUS_LOOKBACK_HOURS"] = "0.02"
    with (
        process(command("fleet"), tmp_path, {}) as fleet,
        process(command("prometheus"), tmp_path, {}) as prometheus,
    ):
        assert "DCGM_FI_" in answer(f"http://127.0.0.1:{ports['fleet']}/metrics", fleet)
        base = f"http://127.0.0.1:{ports['prometheus']}/api/v1/query?query="

        def wait_for(query: str) -> None:
            deadline = time.monotonic() + 600  # the first cycle of a machine compiles for minutes
            while not json.loads(answer(base + query, prometheus))["data"]["result"]:
                assert time.monotonic() < deadline, f"Prometheus has no {query}"
                time.sleep(0.2)

        wait_for("count(DCGM_FI_DEV_FB_USED)")
        time.sleep(3)
        with process(command("trimtab"), tmp_path, environment) as serving:
            answer(f"http://127.0.0.1:{ports['trimtab']}/livez", serving)
            wait_for("trimtab_last_cycle_age_seconds")
        assert serving.returncode == 0
    listed = subprocess.run(
        [trimtab, "--store", store, "sources", "--format", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    (report,) = json.loads(listed.stdout)
    assert report["state"] == "ran"
    assert report["samples"] > 0
