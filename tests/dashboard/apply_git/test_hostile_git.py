"""A git server or a committer that means harm: it is named, and holds up and fills nothing."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from beds.git_server import GitServer
from beds.git_world import MANIFEST, fewer, git_settings, manifest

from dashboard.apply.git import repository
from dashboard.apply.git.applier import GitApplier
from dashboard.apply.git.forges import forge_of
from dashboard.apply.git.repository import base_copy
from data.base.errors import ApplyError
from data.records.changes import Change, StepOutcome, VerificationResult

LIMIT_KIB = 400_000
AS_OTHERS = ("-c", "user.name=Mallory", "-c", "user.email=mallory@site.example")
NAMES = (":x", ":100644 100644 a b M", ":", "\t:a b c d e", "apps/:a b c d e f")


def requested(applier: GitApplier, server: GitServer) -> tuple[Change, str]:
    """An applied change, and the branch of its request."""
    one = fewer()
    change = applier.change_for(one, applier.look(one, job=None, gpus=()))
    for step in change.steps:
        assert applier.execute(step, change).outcome is StepOutcome.DONE
    (branch,) = set(server.branches()) - {"main"}
    return change, branch


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_file_passes_for_a_line_of_git(
    applier: GitApplier, server: GitServer, name: str
) -> None:
    """A commit of others with it on the branch of a request is told, whatever it is called."""
    change, branch = requested(applier, server)
    server.commit({name: "a: 1\n"}, branch=branch)
    reading = applier.read_back(change, done=2)
    assert reading.seen is VerificationResult.NOT_YET
    assert "with a commit on its branch that nobody approved" in reading.detail


def _packet(text: bytes) -> bytes:
    return b"%04x%s" % (len(text) + 4, text)


@contextmanager
def endless_refs() -> Iterator[str]:
    """The address of a server that never ends the list of its branches."""
    over = threading.Event()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(_packet(b"# service=git-upload-pack\n") + b"0000")
                self.wfile.write(_packet(b"%040x refs/heads/0\0ofs-delta\n" % 1))
                for part in count(1):
                    names = range(1000 * part, 1000 * part + 1000)
                    lines = (b"%040x refs/heads/%s%d\n" % (1, b"x" * 200, name) for name in names)
                    self.wfile.write(b"".join(map(_packet, lines)))
                    if over.is_set():
                        return

        def log_message(self, *_what: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_address[1]}/team/fleet.git"
        finally:
            over.set()
            listener.shutdown()
            thread.join()


def test_an_endless_list_of_branches_takes_little_memory(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git keeps every branch that it is told of: it ends at its limit, before the deadline."""
    monkeypatch.setattr(repository, "MAX_MEMORY_KIB", LIMIT_KIB)
    monkeypatch.setattr(repository, "TIMEOUT_SECONDS", 300.0)
    with endless_refs() as address:
        settings = replace(git_settings(server, tmp_path), repository=address)
        limit = pytest.raises(ApplyError, match=r"git fetch failed.*([Oo]ut of memory|over limit)")
        with limit, base_copy(settings):
            raise AssertionError


HUGE = 10**200
ODD: tuple[Any, ...] = (
    None, 7, True, "text", [], {}, [None], [[]], ["x"], [{}], [{"number": HUGE, "iid": HUGE}],
    {"number": "1"}, {"head": "x", "base": "x"}, {"head": {}, "base": {"repo": []}},
    [{"iid": 1, "source_branch": [], "target_branch": {}, "target_project_id": 1}],
    {"permissions": [1]}, {"permissions": {"push": "yes", "x": {"access_level": "50"}}},
    {"message": {"a": "x" * 100_000}}, {"message": "x" * 100_000},
)  # fmt: skip


@pytest.mark.parametrize("server", ["gitea", "github", "gitlab"], indirect=True)
@pytest.mark.parametrize("status", [200, 201, 204, 302, 400, 401, 404, 429, 500])
def test_a_forge_that_answers_oddly_gives_no_right_and_no_request(
    server: GitServer, tmp_path: Path, status: int
) -> None:
    """Every call ends in words of bounded length; nothing of it is taken for ours."""
    forge = forge_of(git_settings(server, tmp_path))
    for answer in ODD:
        server.instead = lambda _method, _path, answer=answer: (status, answer)
        with suppress(ApplyError):
            assert forge.request_of("trimtab/x") is None
        with suppress(ApplyError):
            assert 0 < len(forge.may_push()) < 1000
        for response in (forge.open("trimtab/x", "t", "b"), forge.close(1)):
            assert len(response.words) < 1000
            assert len(response.url) < 1000
        assert len(forge.reason(1)) <= 400


def test_a_manifest_that_is_no_text_any_more_is_a_commit_of_others(
    applier: GitApplier, server: GitServer
) -> None:
    """Bytes of no text, a link and an empty file in the place of the approved edit are told."""
    change, branch = requested(applier, server)
    message = server.git("log", "-1", "--format=%B", branch)
    for text, mode in (("", "100644"), ("/etc/passwd", "120000"), (manifest("x"), "100755")):
        server.git("update-ref", "refs/heads/y", "main")
        server.commit({MANIFEST: text}, mode=mode, branch="y")
        words = ("commit-tree", "y^{tree}", "-p", "main", "-m", message)
        commit = server.git(*AS_OTHERS, *words).strip()
        server.git("update-ref", f"refs/heads/{branch}", commit)
        reading = applier.read_back(change, done=2)
        assert "that nobody approved" in reading.detail, text
