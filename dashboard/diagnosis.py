"""What every configured source lacks, and the exact line that would add it: `trimtab doctor`."""

from collections.abc import Callable, Iterator
from datetime import datetime

from collectors.kubernetes.findings import kubernetes_findings
from collectors.nvml.findings import nvml_findings
from collectors.prometheus_client import PrometheusClient
from collectors.prometheus_findings import prometheus_findings
from collectors.slurm.findings import slurm_findings
from data.errors import TrimtabError
from data.settings import Settings

Finding = tuple[str, str, str]
"""What was looked at; `ok` or `missing`; what was found, or the fix."""


def _prometheus(settings: Settings, now: datetime) -> tuple[Finding, ...]:
    return prometheus_findings(PrometheusClient(settings.prometheus), settings.prometheus, now)


def _asked(settings: Settings) -> dict[str, Callable[[Settings, datetime], tuple[Finding, ...]]]:
    checks: dict[str, tuple[bool, Callable[[Settings, datetime], tuple[Finding, ...]]]] = {
        "prometheus": (bool(settings.prometheus.url), _prometheus),
        "kubernetes": (
            settings.kubernetes.enabled,
            lambda one, _now: tuple(kubernetes_findings(one.kubernetes)),
        ),
        "nvml": (settings.nvml.enabled, lambda one, _now: tuple(nvml_findings(one.nvml))),
        "slurm": (bool(settings.slurm.mode), lambda one, _now: tuple(slurm_findings(one.slurm))),
    }
    return {name: check for name, (configured, check) in checks.items() if configured}


def source_findings(settings: Settings, now: datetime) -> Iterator[tuple[str, Finding]]:
    """Give (source, finding) for every configured source; a failing one is a finding itself."""
    for name, check in _asked(settings).items():
        try:
            findings = check(settings, now)
        except TrimtabError as error:
            findings = (("answers", "missing", str(error)),)
        for finding in findings:
            yield name, finding
