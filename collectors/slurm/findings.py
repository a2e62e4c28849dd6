"""Gaps of a Slurm cluster for Trimtab, each with the line that closes it."""

from collections import Counter
from collections.abc import Iterator

from collectors.shared.collector import Finding
from collectors.slurm.backend import list_in, read_nodes, read_queue
from collectors.slurm.commands import COMMANDS, SlurmCommands, hidden_kinds
from collectors.slurm.failures import OPERATOR_HINT
from collectors.slurm.gpu_models import ModelNames, gpu_models_of
from collectors.slurm.records import Record
from collectors.slurm.rest import SlurmRest
from collectors.slurm.unread import unread_gres
from data.base.counts import count_text
from data.base.errors import CollectorError, scrub
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import SlurmSettings

_MAPPING = (
    "telemetry cannot name Slurm jobs. In slurm.conf: Prolog=/etc/slurm/prolog.sh, "
    "Epilog=/etc/slurm/epilog.sh and PrologFlags=Alloc, where the prolog writes $SLURM_JOB_ID into "
    "a file named by each GPU of $SLURM_JOB_GPUS, in the folder that dcgm-exporter has as "
    "--hpc-job-mapping-dir, and the epilog removes it"
)


def slurm_findings(settings: SlurmSettings) -> tuple[Finding, ...]:
    """Return the findings: (what, ok or missing, detail). Nothing when Slurm is not used."""
    if settings.mode == "commands":
        return _by_commands(SlurmCommands(settings))
    if settings.mode == "rest":
        return _by_rest(SlurmRest(settings))
    return ()


def _by_commands(commands: SlurmCommands) -> tuple[Finding, ...]:
    try:
        paths = [commands.program(command) for command in COMMANDS]
    except CollectorError as error:
        return (("slurm commands", "missing", str(error)),)
    rows: list[Finding] = [("slurm commands", "ok", paths[0].rpartition("/")[0])]
    try:
        configuration = commands.configuration()
    except CollectorError as error:
        return (*rows, ("slurm controller", "missing", str(error)))
    release = scrub(configuration.get("SLURM_VERSION", ""))
    rows.append(("slurm controller", "ok", f"Slurm {release}"))
    rows += _accounting(configuration)
    rows.append(_visibility(commands, configuration))
    # Since 23.11 every Prolog has a number: Prolog[0].
    prologs = [
        value
        for name, value in configuration.items()
        if name.partition("[")[0] == "Prolog" and value not in ("", "(null)")
    ]
    rows.append(
        ("slurm job mapping", "ok", f"Prolog={scrub(', '.join(prologs))}")
        if prologs
        else ("slurm job mapping", "missing", _MAPPING)
    )
    try:
        listed, records, _release = commands.listed()
        rows += _understood(commands.settings, records, listed)
    except CollectorError as error:
        rows.append(("slurm nodes", "missing", str(error)))
    return tuple(rows)


def _understood(
    settings: SlurmSettings, nodes: list[Record], jobs: list[Record]
) -> Iterator[Finding]:
    """Yield the parts of the cluster that are not understood, so that they are not missed."""
    if unread := unread_gres(nodes, jobs).texts:
        yield "accelerators", "missing", f"{'; '.join(unread)}."
    read = read_nodes(nodes, Counter())
    models = ModelNames(gpu_models_of(settings.gpu_models), load_gpu_catalogue(), read)
    missing = models.lacking(read)
    if missing:
        yield "GPU models", "missing", f"{'; '.join(missing)}."
    elif any(node.gpus for node in read):
        yield "GPU models", "ok", "every node with GPUs names a known model"


def _accounting(configuration: dict[str, str]) -> list[Finding]:
    kind = configuration.get("AccountingStorageType", "")
    if not kind.endswith("slurmdbd"):
        detail = (
            f"AccountingStorageType is {scrub(kind) or 'not set'}, so finished jobs are not "
            "visible. In slurm.conf: AccountingStorageType=accounting_storage/slurmdbd"
        )
        return [("slurm accounting", "missing", detail)]
    rows: list[Finding] = [("slurm accounting", "ok", scrub(kind))]
    resources = configuration.get("AccountingStorageTRES", "")
    types = [part for part in resources.split(",") if part.startswith("gres/gpu")]
    if types:
        return [*rows, ("slurm accounting of GPUs", "ok", scrub(",".join(types)))]
    detail = (
        "AccountingStorageTRES has no GPUs, so finished jobs show none. "
        "In slurm.conf: AccountingStorageTRES=gres/gpu"
    )
    return [*rows, ("slurm accounting of GPUs", "missing", detail)]


def _visibility(commands: SlurmCommands, configuration: dict[str, str]) -> Finding:
    hidden = hidden_kinds(configuration)
    if not hidden:
        return ("slurm visibility", "ok", "PrivateData hides no jobs and no nodes")
    if commands.may_see_all(configuration):
        return ("slurm visibility", "ok", f"PrivateData={','.join(hidden)}, not from this user")
    return (
        "slurm visibility",
        "missing",
        f"PrivateData={','.join(hidden)} hides it. {OPERATOR_HINT}",
    )


def _by_rest(rest: SlurmRest) -> tuple[Finding, ...]:
    try:
        version = rest.api_version()
        replies = rest.document(f"/slurm/{version}/jobs"), rest.document(f"/slurm/{version}/nodes")
        lists = [list_in(answer, name, source="slurmrestd")
                 for answer, name in zip(replies, ("jobs", "nodes"), strict=True)]  # fmt: skip
        jobs, nodes = read_queue(lists[0], Counter()), read_nodes(lists[1], Counter())
    except CollectorError as error:
        return (("slurmrestd", "missing", str(error)),)
    rows: list[Finding] = [("slurmrestd", "ok", f"{rest.name}, API {version}")]
    rows += _understood(rest.settings, lists[1], lists[0])
    try:
        rest.document(f"/slurmdb/{version}/jobs", start_time="now")
        rows.append(("slurm accounting", "ok", "slurmdbd answers through slurmrestd"))
    except CollectorError as error:
        rows.append(("slurm accounting", "missing", f"finished jobs are not visible: {error}"))
    in_use = sum(node.gpus_in_use or 0 for node in nodes)
    if in_use and not jobs:
        detail = f"{in_use} GPUs are in use, no job is visible. {OPERATOR_HINT}"
        return (*rows, ("slurm visibility", "missing", detail))
    return (
        *rows,
        (
            "slurm visibility",
            "ok",
            f"{count_text(len(jobs), 'job')} on {count_text(len(nodes), 'node')}",
        ),
    )
