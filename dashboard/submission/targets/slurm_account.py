"""The account that a Slurm job belongs to, and whether a job's script would be an operator.

Slurm gives the script of a job every right of its user. Trimtab reads and changes jobs of others,
so its own user is an operator; a person who may submit must not become one by a job file.
"""

import os
import pwd
import re

from collectors.slurm.commands import SlurmCommands
from data.base.errors import ChangeRefusedError, CollectorError
from data.settings.submission import SubmitSettings

_UID = re.compile(r"\((\d+)\)")
_LEVELS = ("Operator", "Administrator")
_FIX = (
    "Set submit.slurm_user to a user without Slurm rights whom Trimtab may become by sudo; or set "
    "submit.allow_slurm_operator, and every job file can then do what that user can."
)


class SlurmAccount:
    """Account that submits: the user of the settings, else the one who runs Trimtab."""

    def __init__(self, submit: SubmitSettings, commands: SlurmCommands) -> None:
        self._submit = submit
        self._commands = commands

    def _entry(self) -> pwd.struct_passwd:
        name = self._submit.slurm_user
        try:
            return pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())
        except KeyError as error:
            raise ChangeRefusedError(
                f"this machine knows no user {name or os.geteuid()} to submit as",
                "Set submit.slurm_user to a user whom this machine and the cluster know.",
            ) from error

    @property
    def home(self) -> str:
        """Start folder of jobs of another user than Trimtab's; '' for the working directory."""
        return self._entry().pw_dir if self._submit.slurm_user else ""

    def prefix(self) -> tuple[str, ...]:
        """Return the words that run a command as that user."""
        if not self._submit.slurm_user or self._entry().pw_uid == os.geteuid():
            return ()
        user = self._submit.slurm_user
        if os.geteuid() == 0:
            return ("runuser", "-u", user, "--")
        return ("sudo", "-n", "-u", user, "--")

    def why_not(self) -> str:
        """Return the reason not to send a job as that user, '' for none. Errors: CollectorError."""
        if self._submit.allow_slurm_operator:
            return ""
        user = self._entry()
        privilege = self._privilege(user)
        if not privilege:
            return ""
        return f"{user.pw_name}, who would own the job, {privilege}. {_FIX}"

    def _privilege(self, user: pwd.struct_passwd) -> str:
        """Return the privilege of a user beyond submitting, or the reason that it is not known."""
        if user.pw_uid == 0:
            return "is root"
        configuration = self._commands.configuration()
        match = _UID.search(configuration.get("SlurmUser", ""))
        if match is not None and int(match[1]) == user.pw_uid:
            return "is SlurmUser"
        if not configuration.get("AccountingStorageType", "").endswith("slurmdbd"):
            return ""  # without accounting nobody is an operator
        try:
            level = self._commands.output(
                "sacctmgr", "--noheader", "--parsable2", "show", "user", user.pw_name,
                "format=AdminLevel",
            ).strip()  # fmt: skip
        except CollectorError as error:
            return f"may be an operator: sacctmgr does not tell ({error})"
        hidden = "users" in configuration.get("PrivateData", "").split(",")
        if not level and hidden and not self._commands.may_see_all(configuration):
            return "may be an operator: PrivateData=users hides it from Trimtab"
        return f"has AdminLevel={level} in Slurm" if level in _LEVELS else ""
