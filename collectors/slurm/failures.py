"""Slurm's words for what went wrong, as errors with a next step. Both ways of asking share them."""

import re

from data.base.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
)

OPERATOR_HINT = (
    "Give the user that asks `sacctmgr modify user NAME set AdminLevel=Operator`, or ask as "
    "SlurmUser."
)

_ERROR_MESSAGES: tuple[tuple[str, type[CollectorError], str], ...] = (
    (
        r"accounting storage is disabled",
        SourceNotConfiguredError,
        "Set AccountingStorageType=accounting_storage/slurmdbd in slurm.conf.",
    ),
    (
        r"(?i)slurmdbd|slurm_persist_conn|talking to the database",
        SourceUnreachableError,
        "Is slurmdbd running on AccountingStorageHost of slurm.conf? Try `sacctmgr ping`.",
    ),
    (
        r"Unable to con(tact|nect)|Connection (refused|timed out)|Socket timed out|Zero Bytes",
        SourceUnreachableError,
        "Is slurmctld running, and does this machine reach it? Try `scontrol ping`.",
    ),
    (
        r"[Aa]ccess/permission denied|Invalid user id",
        SourceRefusedError,
        f"PrivateData in slurm.conf hides it. {OPERATOR_HINT}",
    ),
    (
        r"[Mm]unge|Protocol authentication",
        SourceRefusedError,
        "Is munged running here, with the cluster's munge.key?",
    ),
    (
        r"configuration source|slurm\.conf|ClusterName",
        SourceNotConfiguredError,
        "Give the cluster's slurm.conf as slurm.conf_file.",
    ),
    (
        r"unrecognized option|invalid option|Invalid field|JSON",
        UnexpectedAnswerError,
        "Slurm 22.05 or later is needed; for an older one use slurm.mode=rest.",
    ),
)


def failure_of(message: str, words: str, *, otherwise: str) -> CollectorError:
    """Return the error that Slurm's words stand for; `otherwise` is the hint to words unknown here.

    `message` already tells what was asked and what came back, scrubbed; `words` is only matched.
    """
    for pattern, kind, hint in _ERROR_MESSAGES:
        if re.search(pattern, words):
            return kind(message, hint)
    return UnexpectedAnswerError(message, otherwise)
