"""A real git server over HTTP on loopback, and a double of Gitea's API before the same repository.

Git is `git http-backend`, the program that serves git over HTTP everywhere; a hook refuses pushes
to `main`, as a protected branch does. The API is a double of ours: paths, fields and status codes
are those that Gitea publishes in its swagger and its `services/convert/pull.go`, of the five
questions that the applier asks. `github` answers the same in GitHub's manner where they differ,
`gitlab` with the merge requests of GitLab's API v4 as its documentation has them.
"""

import base64
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "canary-7f3a-git-token"  # noqa: S105 - of this server alone
_WHO = {"GIT_COMMITTER_NAME": "Robin", "GIT_COMMITTER_EMAIL": "robin@site.example"}
_CREATED = frozenset(
    {"assignee", "assignees", "base", "body", "due_date", "head", "labels", "milestone",
     "reviewers", "team_reviewers", "title"}
)  # fmt: skip
"""Fields of CreatePullRequestOption."""
_VERSION = {"gitea": "v1", "github": "v3", "gitlab": "v4"}
_PROTECTED = """#!/bin/sh
while read old new ref; do
  test "$ref" != refs/heads/main || { echo "main is protected" >&2; exit 1; }
done
"""
Answer = tuple[int, Any]


@dataclass
class GitServer:
    """The repository `team/fleet`, and what was asked of its forge."""

    folder: Path
    kind: str = "gitea"
    port: int = 0
    pushes: bool = True
    requests: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    instead: Callable[[str, str], Answer | None] = lambda _method, _path: None
    """What a test wants answered to (method, path) of the API; None: as it is."""

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def repository(self) -> str:
        """Address to clone."""
        return f"{self.url}/team/fleet.git"

    @property
    def api_url(self) -> str:
        """Address of its API: that of Gitea is told by its end."""
        return f"{self.url}/api/{_VERSION[self.kind]}"

    @property
    def bare(self) -> Path:
        """The repository on disk."""
        return self.folder / "team" / "fleet.git"

    def git(self, *words: str, sent: str = "") -> str:
        """Run git in the repository."""
        found = subprocess.run(
            ["git", "--git-dir", str(self.bare), *words],
            input=sent.encode(),
            capture_output=True,
            check=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)} | _WHO,
        )
        return found.stdout.decode()

    def make(self) -> None:
        """Make it, with a hook that protects `main`."""
        self.bare.parent.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.bare))
        self.git("config", "http.receivepack", "true")
        hook = self.bare / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(_PROTECTED)
        hook.chmod(0o755)

    def commit(
        self, files: Mapping[str, str], *, mode: str = "100644", branch: str = "main"
    ) -> str:
        """Put files on a branch as one commit, and give its id."""
        lines = [f"commit refs/heads/{branch}", "committer Robin <robin@site.example> 1 +0000",
                 "data 1", "x"]  # fmt: skip
        if self.git("for-each-ref", f"refs/heads/{branch}"):
            lines.append(f"from refs/heads/{branch}^0")
        sent = "\n".join(lines) + "\n"
        for path, text in files.items():
            quoted = json.dumps(path, ensure_ascii=False)
            sent += f"M {mode} inline {quoted}\ndata {len(text.encode())}\n{text}\n"
        self.git("fast-import", "--quiet", sent=sent)
        return self.head(branch)

    def head(self, branch: str = "main") -> str:
        """The commit of a branch."""
        return self.git("rev-parse", f"refs/heads/{branch}").strip()

    def branches(self) -> list[str]:
        """The names of its branches."""
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    def text(self, path: str, branch: str = "main") -> str:
        """A file as it is on a branch."""
        return self.git("show", f"refs/heads/{branch}:{path}")

    def merge(self, number: int, *, delete: bool = True) -> None:
        """Merge a request as a person does at the forge, who usually deletes its branch."""
        found = self.requests[number - 1]
        branch = found["head"]["label"].rpartition(":")[2]
        commit = self.head(branch)
        assert self.git("merge-base", "main", commit).strip() == self.head()
        self.git("update-ref", "refs/heads/main", commit)
        found |= {"state": "closed", "merged": True, "merged_at": "2026-11-24T09:00:00Z",
                  "closed_at": "2026-11-24T09:00:00Z", "merge_commit_sha": commit}  # fmt: skip
        if delete:
            self.git("update-ref", "-d", f"refs/heads/{branch}")
            if self.kind == "gitea":
                found["head"]["ref"] = f"refs/pull/{number}/head"

    def decline(self, number: int, reason: str) -> None:
        """Close a request without merging it, as a person does, with a comment."""
        self.requests[number - 1] |= {"state": "closed", "closed_at": "2026-11-24T09:00:00Z"}
        self.requests[number - 1]["comment"] = reason

    def api(self, method: str, path: str, query: Mapping[str, str], content: Any) -> Answer:
        """Answer a question of the API."""
        if self.kind == "gitlab":
            return self._gitlab(method, path, query, content)
        above = "repos/team/fleet"
        if path == above and method == "GET":
            rights = {"admin": False, "push": self.pushes, "pull": True}
            return 200, {"id": 1, "full_name": "team/fleet", "permissions": rights}
        rest = path.removeprefix(f"{above}/").split("/")
        if rest == ["pulls"] and method == "POST":
            return self._create(content)
        if rest == ["pulls"] and method == "GET" and self.kind == "github":
            mine = [entry for entry in self.requests if entry["head"]["label"] == query.get("head")]
            return 200, [_shown(entry) for entry in mine if query.get("state") == "all"]
        if rest[0] == "pulls" and len(rest) == 2 and method == "PATCH":
            self.requests[int(rest[1]) - 1] |= {"state": content["state"]}
            return (201 if self.kind == "gitea" else 200), _shown(self.requests[int(rest[1]) - 1])
        if rest[0] == "pulls" and len(rest) > 2 and self.kind == "gitea":
            names = (unquote(rest[1]), "/".join(rest[2:]))
            for request in self.requests:
                if (request["base"]["ref"], request["head"]["label"]) == names:
                    return 200, _shown(request)
        if rest[0] == "issues" and rest[2:] == ["comments"]:
            said = self.requests[int(rest[1]) - 1].get("comment")
            return 200, [{"id": 1, "body": said}] if said else []
        return 404, {"message": "not found"}

    def _gitlab(self, method: str, path: str, query: Mapping[str, str], content: Any) -> Answer:
        """Answer as GitLab does: a project by its quoted path, merge requests by their `iid`."""
        above = "projects/team%2Ffleet"
        if path == above:
            roles = {"project_access": {"access_level": 30 if self.pushes else 20}}
            return 200, {"id": 1, "permissions": roles | {"group_access": None}}
        rest = path.removeprefix(f"{above}/").split("/")
        if path == above or not path.startswith(f"{above}/merge_requests"):
            return 404, {"message": "404 Project Not Found"}
        if method == "POST":
            if set(content) != {"source_branch", "target_branch", "title", "description"}:
                return 400, {"error": "title is missing"}
            answer = self._create(
                {"head": content["source_branch"], "base": content["target_branch"],
                 "title": content["title"], "body": content["description"]}
            )  # fmt: skip
            return answer if answer[0] != 201 else (201, _merge_request(self.requests[-1]))
        if rest == ["merge_requests"]:
            shown = [_merge_request(entry) for entry in self.requests]
            names = [name for name in query if name != "state"]
            return 200, [
                request for request in shown if all(request[name] == query[name] for name in names)
            ]
        found = self.requests[int(rest[1]) - 1]
        if method == "PUT":
            assert content == {"state_event": "close"}
            found["state"] = "closed"
        if rest[2:] == ["notes"]:
            said = [{"id": 1, "body": found.get("comment"), "system": False}]
            return 200, [*(said if said[0]["body"] else []),
                         {"id": 2, "body": "closed", "system": True}]  # fmt: skip
        return 200, _merge_request(found)

    def _create(self, content: Any) -> Answer:
        if not isinstance(content, dict) or set(content) - _CREATED:
            return 422, {"message": "unknown field"}
        head, base = content["head"], content["base"]
        if head not in self.branches() or head == base:
            return 404, {"message": "no such branch"}
        label = head if self.kind == "gitea" else f"team:{head}"
        named = [entry for entry in self.requests if entry["head"]["label"] == label]
        if any(entry["state"] == "open" for entry in named):
            return (409 if self.kind == "gitea" else 422), {"message": "it exists already"}
        number = len(self.requests) + 1
        self.requests.append(
            {
                "id": 100 + number,
                "number": number,
                "state": "open",
                "title": content["title"],
                "body": content["body"],
                "html_url": f"{self.url}/team/fleet/pulls/{number}",
                "merged_at": None,
                "closed_at": None,
                "created_at": "2026-11-24T08:00:00Z",
                "head": {"label": label, "ref": head, "sha": self.head(head), "repo": {"id": 1}},
                "base": {"label": base, "ref": base, "sha": self.head(base), "repo": {"id": 1}},
            }
        )
        return 201, _shown(self.requests[-1])


def _merge_request(request: dict[str, Any]) -> dict[str, Any]:
    """A request as GitLab tells of it: a branch keeps its name when it is deleted."""
    repo = request["head"]["repo"]
    state = "merged" if request["merged_at"] else request["state"].replace("open", "opened")
    return {
        "id": request["id"],
        "iid": request["number"],
        "project_id": 1,
        "state": state,
        "title": request["title"],
        "description": request["body"],
        "source_branch": request["head"]["label"].rpartition(":")[2],
        "target_branch": request["base"]["ref"],
        "source_project_id": None if repo is None else repo["id"],
        "target_project_id": 1,
        "web_url": request["html_url"],
        **{name: request[name] for name in ("created_at", "merged_at", "closed_at")},
    }


def _shown(request: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name != "comment"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def _any(self) -> None:
        bed, parts = self.server.bed, urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        bed.asked.append(f"{self.command} {self.path}")
        bed.headers.append(dict(self.headers))
        said = self.headers.get("Authorization", "")
        basic = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        scheme = "Bearer" if bed.kind == "gitlab" else "token"
        if said not in (f"{scheme} {TOKEN}", f"Basic {basic}"):
            self._send(401, b"who are you, " + said.encode(), {"WWW-Authenticate": "Basic"})
        elif parts.path.startswith(f"/api/{_VERSION[bed.kind]}/"):
            path = parts.path[len("/api/v1/") :]
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            status, found = bed.instead(self.command, path) or bed.api(
                self.command, path, query, json.loads(body) if body else None
            )
            kind = {"Content-Type": "application/json"}
            self._send(status, json.dumps(found).encode(), kind)
        else:
            self._git(parts.path, parts.query, body)

    do_GET = do_POST = do_PATCH = do_PUT = _any  # noqa: N815 - names that the server looks for

    def _git(self, path: str, query: str, body: bytes) -> None:
        """Hand the request to git http-backend, by CGI."""
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.bed.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": unquote(path),
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "trimtab",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environ, capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        named = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._send(int(named.pop("Status", "200 OK").split()[0]), content, named)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bed: GitServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bed = bed


@contextmanager
def running_git_server(folder: Path, kind: str = "gitea") -> Iterator[GitServer]:
    """Serve an empty repository and its forge until the block ends."""
    bed = GitServer(folder=folder, kind=kind)
    bed.make()
    with _Server(bed) as server:
        bed.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield bed
        finally:
            server.shutdown()
            thread.join()
