"""Settings of approving and applying: two switches, limits, and rights."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from data.base.state_folder import DEFAULT_FOLDER
from data.settings.fields import (
    Section,
    comes_unchanged,
    documented,
    documented_list,
    documented_path,
    entries,
    fixed,
)

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = "|".join(_DAYS)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d"
_ENTRY = re.compile(
    rf"(?=\S)(?:(?P<first>{_DAY})(?:-(?P<last>{_DAY}))?)?(?:(?:^|\s+)"
    rf"(?P<begin>{_TIME})-(?!(?P=begin))(?P<end>{_TIME}))?",
    re.IGNORECASE,
)
FORM = "entries such as Mon-Fri 22:00-06:00 or Sat, parted by commas, or empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeWindow:
    """A period that begins on each of some days (0: Monday) and may end on the next."""

    days: frozenset[int]
    begin: time = time()
    end: time = time()

    def holds(self, local: datetime) -> bool:
        """Return whether a local time lies inside."""
        clock, today = local.time(), local.weekday()
        if self.begin < self.end:
            return today in self.days and self.begin <= clock < self.end
        began_today = today in self.days and clock >= self.begin
        return began_today or ((today - 1) % 7 in self.days and clock < self.end)


def change_windows(text: str) -> tuple[ChangeWindow, ...]:
    """Return the windows of a setting, () of an empty one. Errors: ValueError names the entry."""
    return tuple(map(_window, entries(text)))


def _window(entry: str) -> ChangeWindow:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ValueError(entry)
    first, last, begin, end = (match[name] for name in ("first", "last", "begin", "end"))
    days = range(7)
    if first:
        start = _DAYS.index(first.lower())
        span = (_DAYS.index((last or first).lower()) - start) % 7
        days = range(start, start + span + 1)
    return ChangeWindow(
        days=frozenset(day % 7 for day in days),
        begin=time.fromisoformat(begin) if begin else time(),
        end=time.fromisoformat(end) if end else time(),
    )


def next_opening(windows: Iterable[ChangeWindow], now: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the next opening of a window (UTC), None while one is open or none is asked for.

    Where the clocks change, a window opens and closes by the new time; one that would open in the
    hour that is left out opens as that hour is skipped.
    """
    windows, local = tuple(windows), now.astimezone(zone)
    if not windows or any(window.holds(local) for window in windows):
        return None
    days = (local.date() + timedelta(days=ahead) for ahead in range(8))
    begins = (
        datetime.combine(day, window.begin, tzinfo=zone).astimezone(UTC)
        for day in days
        for window in windows
        if day.weekday() in window.days
    )
    return min(begin for begin in begins if begin > now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySettings(Section, name="apply"):
    """The path of approved recommendations to the cluster. Read-only unless two switches are on.

    The first switch is `apply.enabled`, the second the `enabled` of the target's own section.
    """

    directory: str = documented_path(
        f"{DEFAULT_FOLDER}/changes", "folder that receives change files"
    )
    enabled: bool = documented(False, "first switch: let the apply worker change clusters")
    stop_file: str = documented_path(
        f"{DEFAULT_FOLDER}/STOP", "kill switch: while this file exists nothing is applied"
    )
    window: str = documented_list(
        "",
        "when changes may begin, in report.timezone, such as Mon-Fri 22:00-06:00, Sat, Sun; "
        "rollbacks may at any time; empty: always",
    )
    max_per_hour: int = documented(
        10, "changes that may be started within an hour", minimum=1, maximum=10_000
    )
    max_namespace_share_ratio: float = documented(
        0.5,
        "share of a namespace's GPUs that changes may take within 24 h",
        minimum=0,
        maximum=1,
    )
    cool_down_minutes: float = documented(
        60.0, "time between two changes of one job, min", minimum=0, maximum=525_600
    )
    rollout_timeout_minutes: float = documented(
        5.0,
        "time for the effect of a change, and for a failing job to recover, min",
        minimum=0,
        maximum=525_600,
    )
    # How long an applied change is watched, and after how many slots its saving is measured.
    watch_minutes: float = fixed(30.0)
    verify_slots: int = fixed(8)
    # The loss of throughput from which a change falls short of its promise.
    throughput_loss_ratio: float = fixed(0.1)
    auto_rollback: bool = documented(
        False, "undo a change by itself when its job fails or falls short"
    )

    def _check(self) -> None:
        self.require(bool(self.stop_file), "stop_file", "the path of a file")
        try:
            change_windows(self.window)
        except ValueError:
            self.require(False, "window", FORM)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesApplySettings(Section, name="apply_kubernetes"):
    """Changing Kubernetes objects, with an account apart from the reading one."""

    enabled: bool = documented(False, "second switch: apply changes to Kubernetes")
    kubeconfig: str = documented_path("", "kubeconfig of the applying account; empty: in-cluster")
    context: str = documented("", "context of that kubeconfig; empty: its current one")
    pending_seconds: float = documented(
        120.0,
        "time a new pod may wait for GPUs before the change counts as failing, s",
        minimum=0,
        maximum=3600,
    )
    cut_nodes: bool = documented(
        False, "third switch: cut free nodes by MIG, or let them offer shares"
    )


_BRANCH = re.compile(r"(?!.*(\.\.|//|/\.|[./]$|\.lock(/|$)))[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_PATH = re.compile(
    r"(?!.*(^|/)\.{1,2}(/|$))(?!\.git(/|$))[^/\x00-\x1f\x7f\\][^\x00-\x1f\x7f\\]{0,399}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitPath:
    """An entry of `apply_git.paths`. `keys` is a part of Helm values, () for all of a file."""

    workload: str
    path: str
    keys: tuple[str, ...]

    @classmethod
    def of(cls, entry: str) -> "GitPath":
        """Return it from WORKLOAD=PATH or WORKLOAD=PATH#KEY.KEY."""
        workload, _, where = entry.partition("=")
        path, hash_sign, keys = where.strip().partition("#")
        parts = tuple(keys.split(".")) if hash_sign else ()
        return cls(workload=workload.strip(), path=path.rstrip("/"), keys=parts)


BRANCH_PREFIX = "trimtab/"
"""Start of the branches that Trimtab makes, by which it knows them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitApplySettings(Section, name="apply_git"):
    """Changing Kubernetes objects in the Git repository that owns them, by pull requests.

    The cluster is read with `apply_kubernetes.kubeconfig`, for which the reading account is enough.
    """

    enabled: bool = documented(False, "second switch: open pull requests for changes")
    repository: str = documented("", "address to fetch and push, such as https://host/team/fleet")
    base_branch: str = documented("main", "branch that requests are made against; never pushed to")
    paths: str = documented_list(
        "",
        "file or folder of a workload, WORKLOAD=PATH, a list. A workload is namespace/kind/name "
        "with * and ?, argo-cd:APPLICATION, flux:NAMESPACE/KUSTOMIZATION, flux-helm:NAMESPACE/"
        "RELEASE or helm:NAMESPACE/RELEASE. WORKLOAD=PATH#KEY.KEY: a part of Helm values",
    )
    api_url: str = documented(
        "",
        "such as https://host/api/v1 (Gitea, Forgejo) or https://host/api/v4 (GitLab); any other "
        "end is GitHub's REST API",
    )
    token_file: str = documented_path("", "file with the token of an account that may push")
    author: str = documented(
        "Trimtab <trimtab@example.org>", "NAME <MAIL> of commits and of their sign-off"
    )

    @property
    def forge(self) -> str:
        """The kind of forge whose API `api_url` is: gitea, gitlab or github."""
        end = self.api_url.rstrip("/")[-len("/api/v1") :]
        return {"/api/v1": "gitea", "/api/v4": "gitlab"}.get(end, "github")

    @property
    def entries(self) -> tuple[GitPath, ...]:
        """The entries of `paths`, in order."""
        return tuple(map(GitPath.of, entries(self.paths)))

    def _check(self) -> None:
        for name in ("repository", "api_url"):
            self.require(not self.enabled or _is_safe(getattr(self, name)), name, _SAFE_ADDRESS)
        owned = not self.enabled or urlsplit(self.repository).path.strip("/").count("/") > 0
        self.require(owned, "repository", "an address that ends in OWNER/NAME")
        self.require(
            _BRANCH.fullmatch(self.base_branch) is not None
            and not self.base_branch.startswith(BRANCH_PREFIX),
            "base_branch",
            f"a valid branch name that does not begin with {BRANCH_PREFIX}",
        )
        for entry in self.entries:
            valid = bool(entry.workload) and _PATH.fullmatch(entry.path) is not None
            valid = valid and all(entry.keys)
            self.require(
                valid,
                "paths",
                "WORKLOAD=PATH or WORKLOAD=PATH#KEY.KEY, the path inside the repository without ..",
            )
        for name in ("token_file", "paths"):
            self.require(not self.enabled or bool(getattr(self, name)), name, "set")
        author = re.fullmatch(r"[^<>\x00-\x1f]{1,80} <[^<>\s\x00-\x1f]{1,80}>", self.author)
        self.require(author is not None, "author", "NAME <MAIL>")


_SAFE_ADDRESS = "an https:// address without a password, ? or # (http:// for this machine alone)"


def _is_safe(address: str) -> bool:
    plain = address.isascii() and address.isprintable() and not set(" ?#") & set(address)
    return plain and comes_unchanged(address) and "@" not in urlsplit(address).netloc


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmApplySettings(Section, name="apply_slurm"):
    """Changing Slurm jobs, by the client programs or slurmrestd that `slurm` names."""

    enabled: bool = documented(False, "second switch: apply changes to Slurm")
    rest_user: str = documented("", "sent as X-SLURM-USER-NAME")
    rest_token: str = documented(
        "", "JWT sent as X-SLURM-USER-TOKEN; with one changes go by slurmrestd", secret=True
    )
    rest_token_file: str = documented_path("", "file with that token, read anew at every change")
    allow_requeue: bool = documented(
        False, "running jobs may be requeued to change them: work since a checkpoint is lost"
    )
    requeue_behind_others: bool = documented(
        False, "requeue a running job even while others wait for its nodes and may start first"
    )
    pending_seconds: float = documented(
        120.0,
        "time a requeued job may wait before the change counts as failing, s",
        minimum=0,
        maximum=604_800,
    )

    @property
    def mode(self) -> str:
        """Return the way that changes go: rest where a token for it is given, else commands."""
        return "rest" if self.rest_token or self.rest_token_file else "commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerApplySettings(Section, name="apply_power"):
    """Power caps through the agent on the nodes."""

    enabled: bool = documented(False, "second switch: let agents set power limits")
    directory: str = documented_path("", "folder shared with the agents: caps/ and reports/")
    secret_file: str = documented_path("", "file with the secret that signs caps and reports")
