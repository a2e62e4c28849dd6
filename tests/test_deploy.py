"""What is in deploy/ is what the programs there accept, and speaks of metrics that exist."""

import configparser
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from collectors.kubernetes.workloads import Workload
from dashboard.cli.parser.parser import build_parser

DEPLOY = Path(__file__).parents[1] / "deploy"
SOURCE = Path(__file__).parents[1] / "dashboard/web/server/prometheus_metrics.py"
BOARD = json.loads((DEPLOY / "grafana/dashboards/trimtab.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((DEPLOY / "prometheus/trimtab-alerts.yml").read_text(encoding="utf-8"))


def expressions() -> list[str]:
    """Every PromQL expression of the Grafana board, its variables filled in."""
    found = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    return [entry.replace("$job", ".+") for entry in found]


def known_metrics() -> set[str]:
    """Every metric name that Trimtab can give, read off the families it makes."""
    text = SOURCE.read_text(encoding="utf-8")
    names = set(re.findall(r'_(?:gauge|age|family)\(\s*"([a-z_]+)"', text))
    names |= {
        f"{entry}_info" for entry in re.findall(r'InfoMetricFamily\(\s*"trimtab_(\w+)"', text)
    }
    units = re.findall(r'^    "(\w+)": \(', text, flags=re.MULTILINE)
    names |= {
        f"{kind}_{unit}"
        for kind in ("waiting_savings", "recommendation_saving", "recommended_savings")
        for unit in units
    }
    return {f"trimtab_{name}" for name in names}


def test_boards_and_alerts_ask_for_metrics_that_exist() -> None:
    """A renamed metric cannot leave an empty panel or an alert that never fires."""
    rules = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    asked = {name for text in (*expressions(), *rules) for name in re.findall(r"trimtab_\w+", text)}
    assert asked
    assert asked - known_metrics() == set()


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("keda/*.yaml")), ids=lambda path: path.stem)
def test_a_scaled_object_asks_for_the_service_that_it_scales(path: Path) -> None:
    """By the id that the collector gives the target."""
    documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    scaled = next(entry for entry in documents if entry["kind"] == "ScaledObject")
    target = Workload(
        namespace=scaled["metadata"]["namespace"],
        kind=scaled["spec"]["scaleTargetRef"].get("kind", "Deployment"),
        name=scaled["spec"]["scaleTargetRef"]["name"],
    )
    assert f'"{target.job_id}"' in str(scaled["spec"]["triggers"][0]["metadata"])


def test_every_panel_says_its_unit() -> None:
    """No figure without a unit; 'none' where it is a plain count, and the title says of what."""
    for panel in BOARD["panels"]:
        assert panel["fieldConfig"]["defaults"].get("unit"), panel["title"]


def test_every_alert_says_what_to_do() -> None:
    """A summary with the value, and the next step."""
    for rule in RULES["groups"][0]["rules"]:
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning")


def promtool(*arguments: str, folder: Path) -> str:
    """What promtool says; fails when it objects."""
    done = subprocess.run(
        ["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.prometheus
def test_the_alert_rules_fire_as_their_tests_say() -> None:
    """Prometheus' own tool replays the series of the rules' unit tests."""
    assert "8 rules found" in promtool(
        "check", "rules", "trimtab-alerts.yml", folder=DEPLOY / "prometheus"
    )
    promtool("test", "rules", "trimtab-alerts.test.yml", folder=DEPLOY / "prometheus")


@pytest.mark.prometheus
def test_every_panel_is_valid_promql(tmp_path: Path) -> None:
    """Each expression of the board is a rule that Prometheus' own tool accepts."""
    rules: list[dict[str, Any]] = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(expressions())
    ]
    document = {"groups": [{"name": "board", "rules": rules}]}
    (tmp_path / "board.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    promtool("check", "rules", "board.yml", folder=tmp_path)


def unit(name: str) -> configparser.ConfigParser:
    """A systemd unit; keys may repeat, the last one is kept."""
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(DEPLOY / "systemd" / name, encoding="utf-8")
    return parsed


@pytest.mark.parametrize("name", ["trimtab.service", "trimtab-report.service"])
def test_units_run_commands_that_exist_as_a_plain_user(name: str) -> None:
    """The command line of a unit is one that Trimtab's parser takes; no unit runs as root."""
    service = unit(name)["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/trimtab")
    assert build_parser().parse_args(words)
    assert service["User"] == "trimtab"
    assert service["ProtectSystem"] == "strict"
    assert not any("secret" in word.lower() or "token" in word.lower() for word in words)
