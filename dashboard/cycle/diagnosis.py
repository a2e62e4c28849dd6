"""Gaps of every configured source, and the exact line that would close each: `trimtab doctor`."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from collectors.prometheus.findings import NAMES_SLURM
from collectors.shared.collector import Finding, sources_in_use
from data.base.errors import TrimtabError
from data.facts.cluster_names import named_in
from data.settings.all_settings import Settings
from data.settings.multi_cluster import settings_by_cluster


def source_findings(settings: Settings, now: datetime) -> Iterator[tuple[str, Finding]]:
    """Yield (source, finding) for every configured source; a failing one is a finding itself.

    A source of a further cluster is called SECTION@CLUSTER. Errors: SettingsError for its file.
    """
    for cluster, local in settings_by_cluster(settings).items():
        for name, finding in _of_one_cluster(local, now):
            yield named_in(name, cluster), finding


def reads_engines(settings: Settings) -> bool:
    """Return whether a source may tell of inference engines."""
    return bool({"prometheus", "simulated_fleet"} & set(settings.sources_in_use()))


def _of_one_cluster(settings: Settings, now: datetime) -> Iterator[tuple[str, Finding]]:
    findings_by_source: dict[str, tuple[Finding, ...]] = {}
    for name, source in sources_in_use(settings).items():
        try:
            findings_by_source[name] = tuple(source.findings(settings, now))
        except TrimtabError as error:
            findings_by_source[name] = (("answers", "missing", str(error)),)
    for name, findings in findings_by_source.items():
        for finding in findings:
            if (adapted := _without_repeats(finding, findings_by_source)) is not None:
                yield name, adapted


def _without_repeats(finding: Finding, rows: Mapping[str, tuple[Finding, ...]]) -> Finding | None:
    """Return the finding as the other sources leave it, None where another one says the same.

    Who holds a board on Slurm is seen from two sides: in the labels of samples, and in the
    configuration that should bring them there.
    """
    what, state, _detail = finding
    others = {entry[0]: entry for entry in (*rows.get("prometheus", ()), *rows.get("slurm", ()))}
    if what == _MAPPING and state == "missing":
        if NAMES_SLURM in others.get(_LABELS, ("", "", ""))[2]:
            return what, "ok", "samples name Slurm jobs, by other means than Prolog of slurm.conf"
    elif what == _LABELS and state == "missing" and _MAPPING in others:
        if others[_MAPPING][1] == "missing" and "kubernetes" not in rows:
            return None
        if others[_MAPPING][1] == "ok":
            return (
                what,
                state,
                (
                    "no series names a job, though slurm.conf has a Prolog. Start dcgm-exporter "
                    "with --hpc-job-mapping-dir DIR, and let the Prolog write DIR/<gpu>; while no "
                    "job runs there is nothing to name."
                ),
            )
    return finding


_LABELS = "job labels"
_MAPPING = "slurm job mapping"
