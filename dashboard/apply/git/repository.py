"""A bare, shallow copy of one branch, and commits made in it without a working tree.

Nothing is ever checked out: no hook, filter, link or path of the repository touches this machine.
Git runs without settings of the user or the system, with one protocol, a deadline for each command
and a limit on every file that it writes. The token goes by the environment of the process, so that
no list of processes shows it. Nothing is ever forced.
"""

import base64
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dashboard.apply.git.manifests import MAX_BYTES
from data.base.errors import ApplyError, ChangeRefusedError, scrub
from data.records.changes import StepOutcome, StepResult
from data.settings.apply import GitApplySettings

TIMEOUT_SECONDS = 30.0
"""Of one git command or request of the forge: the copy is shallow."""
_MAX_FILE_BLOCKS = 1024 * 1024
"""Of 512 bytes: 512 MiB for a pack."""
MAX_MEMORY_KIB = 2 * 1024 * 1024
"""Addresses of one git process, a whole pack among them: it keeps every branch it is told of."""
_MAX_ALLOCATION = "64m"
"""Of one piece: what a commit, a tree or a file unpacks to, where it is not written as it comes."""
_MAX_OUTPUT = 8 * 1024 * 1024
_MAX_FILES = 500
"""YAML files of a folder that is searched: each is read by a program of its own."""
_MAX_TOKEN = 4096
_MAX_COMPLAINT = 64 * 1024
_BASE_DEPTH = 100
"""Commits of the base branch among which that of an open request has to begin."""
_REFUSED = re.compile(r"^!\s.*\[(?:remote )?rejected\] \((.*)\)", re.MULTILINE)
"""The mark of a branch that the server declined, in `git push --porcelain`."""
_HTTP_REFUSAL = re.compile(r"(?:returned error: |HTTP )(4[0-9][0-9])")
"""An error of HTTP by which a server takes nothing."""
_REMOTE = re.compile(r"^remote: ?(.*\S)", re.MULTILINE)
_REGULAR = ("100644", "100755")
_OPTIONS = {
    "core.hooksPath": "/dev/null",
    "credential.helper": "",
    "protocol.ext.allow": "never",
    "http.followRedirects": "false",
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": "20",
    "fetch.fsckObjects": "true",
    "transfer.bundleURI": "false",
    "submodule.recurse": "false",
    # What is larger is written as it comes: a few kB may unpack to a GiB.
    "core.bigFileThreshold": "1m",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "commit.gpgSign": "false",
    "push.gpgSign": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GitFile:
    """A regular file of a commit: its path, mode and the id of its content."""

    path: str
    mode: str
    blob: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchCommit:
    """A commit, who is named as its author, and each file that it changes before and after.

    `is_on_base`: its one parent is of the base branch.
    """

    commit: str
    author: str
    message: str
    files: tuple[tuple[GitFile, GitFile], ...]
    is_on_base: bool


def token_of(settings: GitApplySettings) -> str:
    """Return the token, read anew. Errors: ChangeRefusedError when it cannot be used."""
    path = Path(settings.token_file).expanduser()
    try:
        token = path.read_bytes()[: _MAX_TOKEN + 1].decode("ascii").strip()
    except (OSError, UnicodeError) as error:
        raise ChangeRefusedError(
            f"apply_git.token_file {path} cannot be read ({type(error).__name__})",
            "Put the token of an account that may push into it.",
        ) from error
    if not token or len(token) > _MAX_TOKEN or not token.isprintable() or " " in token:
        raise ChangeRefusedError(
            f"apply_git.token_file {path} holds no token", "Put one line with the token into it."
        )
    return token


class GitCopy:
    """The copy in a folder; `commit` is the head of the base branch."""

    def __init__(self, settings: GitApplySettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._token = token_of(settings)
        self.commit = ""

    def fetch_base(self) -> None:
        """Make the copy. Errors: ApplyError."""
        self._git("init", "--quiet", "--bare", "--template=", str(self._folder / "copy"))
        self._fetch(self._settings.base_branch, "base", depth=1)
        self.commit = self._text("rev-parse", "--verify", "refs/copy/base^{commit}")

    def files(self, path: str) -> tuple[GitFile, ...]:
        """Return the regular YAML files at or below a path.

        No links, no submodules, none too large. Errors: ApplyError, ChangeRefusedError.
        """
        listed = self._git("ls-tree", "-r", "-z", "-l", "--full-tree", self.commit, "--", path)
        files = []
        for entry in listed.split(b"\0"):
            facts, _tab, name = entry.partition(b"\t")
            mode, _kind, blob, size = [*facts.decode("ascii", "replace").split(), "", "", "", ""][
                :4
            ]
            title = name.decode("utf-8", "replace")
            has_type = title == path or title.endswith((".yaml", ".yml"))
            small = size.isdecimal() and int(size) <= MAX_BYTES
            # A name that no person could read in a difference is no place for a change.
            if (
                mode in _REGULAR
                and has_type
                and small
                and title.isprintable()
                and "\ufffd" not in title
            ):
                files.append(GitFile(path=title, mode=mode, blob=blob))
        if len(files) > _MAX_FILES:
            raise ChangeRefusedError(
                f"{path} holds {len(files)} YAML files, more than {_MAX_FILES}",
                "Name a smaller folder or the file itself in apply_git.paths.",
            )
        return tuple(files)

    def text(self, file: GitFile) -> str:
        """Return the text of a file. Errors: ApplyError, ChangeRefusedError."""
        try:
            return self._git("cat-file", "blob", file.blob).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ChangeRefusedError(
                f"{file.path} is not valid UTF-8", "Save it as UTF-8."
            ) from error

    def commit_file(self, file: GitFile, text: str, message: str, at: int) -> str:
        """Return the commit of the base with one file changed; the same words give the same one.

        Errors: ApplyError.
        """
        blob = self._text("hash-object", "-w", "--no-filters", "--stdin", sent=text.encode())
        self._git("read-tree", self.commit)
        entry = f"{file.mode} {blob}\t{file.path}\0".encode()
        self._git("update-index", "-z", "--index-info", sent=entry)
        tree = self._text("write-tree")
        return self._text("commit-tree", tree, "-p", self.commit, sent=message.encode(), at=at)

    def branch_head(self, branch: str) -> str:
        """Return the commit of a branch of the repository, '' without one. Errors: ApplyError."""
        ref = f"refs/heads/{branch}"
        listing = self._text("ls-remote", "--refs", "--", self._settings.repository, ref)
        heads = [line.split("\t") for line in listing.splitlines()]
        return next((head[0] for head in heads if head[1:] == [ref]), "")

    def branch_commit(self, branch: str) -> BranchCommit:
        """Return the newest commit of a branch and what it changes. Errors: ApplyError."""
        ref = "refs/copy/branch"
        self._fetch(branch, "branch", depth=2)
        commit, parents, author, message = (
            self._git("log", "-1", f"--format={form}", ref).decode("utf-8", "replace").strip()
            for form in ("%H", "%P", "%an", "%B")
        )
        raw = self._git(
            "diff-tree", "-r", "-z", "--no-renames", "--root", "-m", "--no-commit-id", ref
        )
        entries = raw.decode("utf-8", "replace").split("\0")[:-1]
        # In turn, since a path may look like facts.
        facts = [entry.split() for entry in entries[::2]]
        files = tuple(
            (
                GitFile(path=path, mode=old_mode[1:], blob=old),
                GitFile(path=path, mode=mode, blob=new),
            )
            for (old_mode, mode, old, new, _how), path in zip(facts, entries[1::2], strict=True)
        )
        return BranchCommit(
            commit=commit,
            author=author,
            message=message,
            files=files,
            is_on_base=self._is_on_base(parents),
        )

    def _is_on_base(self, commit: str) -> bool:
        """Return whether a commit is the head of the base branch, or was not long ago."""
        if commit == self.commit:
            return True
        self._fetch(self._settings.base_branch, "base", depth=_BASE_DEPTH)
        return commit in self._text("rev-list", "refs/copy/base").split()

    def _fetch(self, branch: str, name: str, *, depth: int) -> None:
        self._git(
            "fetch", "--quiet", f"--depth={depth}", "--no-tags", "--no-recurse-submodules", "--",
            self._settings.repository, f"+refs/heads/{branch}:refs/copy/{name}",
        )  # fmt: skip

    def push(self, commit: str, branch: str) -> StepResult:
        """Send one commit to one new branch, once, never forced. Never raises."""
        refspec = f"{commit}:refs/heads/{branch}"
        try:
            self._git("push", "--quiet", "--porcelain", "--no-verify", "--",
                      self._settings.repository, refspec)  # fmt: skip
        except GitCutError as error:
            return StepResult(outcome=StepOutcome.UNKNOWN, detail=error.message)
        except GitFailedError as error:
            # Git ends with an error for a refusal and for a lost line alike: a look decides.
            refusal = _refusal(error.output)
            if refusal:
                return StepResult(outcome=StepOutcome.REFUSED, detail=refusal)
            return StepResult(outcome=StepOutcome.UNKNOWN, detail=error.message)
        return StepResult(outcome=StepOutcome.DONE, detail=f"pushed {commit[:12]} to {branch}")

    def _text(self, *words: str, sent: bytes = b"", at: int = 0) -> str:
        return self._git(*words, sent=sent, at=at).decode("ascii", "replace").strip()

    def _git(self, *words: str, sent: bytes = b"", at: int = 0) -> bytes:
        """Run one command and return what it wrote. Errors: ApplyError, GitCutError."""
        limited = f'ulimit -f {_MAX_FILE_BLOCKS}; ulimit -v {MAX_MEMORY_KIB}; exec git "$@"'
        with (
            tempfile.TemporaryFile(dir=self._folder) as stdout,
            tempfile.TemporaryFile(dir=self._folder) as complaint,
        ):
            with subprocess.Popen(  # noqa: S603 - words of our own, no shell of theirs
                ["/bin/sh", "-c", limited, "git", *words],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=complaint,
                cwd=self._folder,
                env=self._environment(at),
                start_new_session=True,
            ) as process:
                try:
                    process.communicate(sent, timeout=TIMEOUT_SECONDS)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    raise GitCutError(
                        f"git {words[0]} did not finish within {TIMEOUT_SECONDS:g} s",
                        "Is the repository reachable? A shallow copy of it must take less.",
                    ) from None
            stdout.seek(0)
            complaint.seek(0)
            written = stdout.read(_MAX_OUTPUT + 1)
            if process.returncode or len(written) > _MAX_OUTPUT:
                output = b"\n".join((complaint.read(_MAX_COMPLAINT), written[:_MAX_COMPLAINT]))
                text = output.decode("utf-8", "replace")
                text = text.replace(self._token, "***").replace(_basic(self._token), "***")
                raise GitFailedError(words[0], text)
        return written

    def _environment(self, at: int) -> dict[str, str]:
        settings = self._settings
        name, _, mail = settings.author.partition(" <")
        scheme = urlsplit(settings.repository).scheme
        options = _OPTIONS | {
            f"http.{settings.repository}.extraHeader": f"Authorization: Basic {_basic(self._token)}"
        }
        variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "LC_ALL": "C",
            "GIT_DIR": str(self._folder / "copy"),
            "GIT_INDEX_FILE": str(self._folder / "index"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_ALLOW_PROTOCOL": scheme,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_CONFIG_COUNT": str(len(options)),
            "GIT_ALLOC_LIMIT": _MAX_ALLOCATION,
        }
        for role in ("AUTHOR", "COMMITTER"):
            variables |= {
                f"GIT_{role}_NAME": name,
                f"GIT_{role}_EMAIL": mail.removesuffix(">"),
                f"GIT_{role}_DATE": f"@{at} +0000",
            }
        for index, (option, value) in enumerate(options.items()):
            variables |= {f"GIT_CONFIG_KEY_{index}": option, f"GIT_CONFIG_VALUE_{index}": value}
        return variables


class GitFailedError(ApplyError):
    """A command ended with an error; `output` is all that it wrote, without the token."""

    def __init__(self, command: str, output: str) -> None:
        super().__init__(
            f"git {command} failed: {scrub(output)}",
            "Look at apply_git.repository, base_branch and token_file.",
        )
        self.output = output


def _refusal(output: str) -> str:
    """Return the server's own answer to a push that it did not take, '' where none is known."""
    reason = _REFUSED.search(output) or _HTTP_REFUSAL.search(output)
    if reason is None:
        return ""
    words = " ".join(match[1] for match in _REMOTE.finditer(output))
    return scrub(f"the server refuses the push ({reason[1]})" + (f": {words}" if words else ""))


class GitCutError(ApplyError):
    """A command was ended at its deadline: what it sent may have arrived or not."""


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


@contextmanager
def base_copy(settings: GitApplySettings) -> Iterator[GitCopy]:
    """Return a fresh copy of the base branch, removed afterwards. Errors: ApplyError."""
    try:
        with tempfile.TemporaryDirectory(
            prefix="trimtab-git-", ignore_cleanup_errors=True
        ) as folder:
            copy = GitCopy(settings, Path(folder))
            copy.fetch_base()
            yield copy
    except OSError as error:
        raise ApplyError(
            f"git cannot work on this machine: {type(error).__name__}",
            "Are /bin/sh, git, and a temporary folder with room there?",
        ) from error
