"""Pull requests of Gitea, Forgejo and GitHub, and merge requests of GitLab."""

from typing import Any
from urllib.parse import quote, urlsplit

from dashboard.apply.git.forge import Forge, ForgeAnswer, PullRequest, safe_url
from data.base.errors import ApplyError, scrub
from data.settings.apply import GitApplySettings

_DEVELOPER = 30
"""Access level of GitLab from which a member may push branches and open merge requests."""
_FORGE_HINT = "Look at apply_git.api_url and its token."


class PullForge(Forge):
    """Gitea, Forgejo or GitHub, in the few calls that they share."""

    def __init__(self, settings: GitApplySettings) -> None:
        super().__init__(settings)
        self._owner, name = self._names[-2:]
        self._above = f"repos/{quote(self._owner)}/{quote(name)}"

    def may_push(self) -> str:
        """See Forge."""
        answer = self._ask("GET", self._above)
        if answer.status != 200 or not isinstance(answer.data, dict):
            return answer.words
        rights = answer.data.get("permissions")
        if isinstance(rights, dict) and rights.get("push") is True:
            return ""
        return "the account of apply_git.token_file may not push to the repository"

    def request_of(self, branch: str) -> PullRequest | None:
        """See Forge. Each of the two has a question of its own for it."""
        base = self._settings.base_branch
        if self._settings.forge == "gitea":
            path, query = f"pulls/{quote(base, safe='')}/{quote(branch)}", {}
        else:
            path, query = "pulls", {"state": "all", "base": base, "head": f"{self._owner}:{branch}"}
        answer = self._ask("GET", f"{self._above}/{path}", query=query)
        # GitHub answers 404 for what an account may not see, and an empty list for none.
        if answer.status == 404 and self._settings.forge == "gitea":
            return None
        entries = [answer.data] if isinstance(answer.data, dict) else answer.data
        if answer.status != 200 or not isinstance(entries, list):
            raise ApplyError(answer.words, _FORGE_HINT)
        mine = [entry for entry in entries if self._is_of(entry, branch)]
        if not mine:
            return None
        entry = max(mine, key=lambda entry: int(entry["number"]))
        merged, state = entry.get("merged_at"), entry.get("state")
        status = "merged" if merged else "open" if state == "open" else "closed"
        at = merged or entry.get("closed_at") or entry.get("created_at")
        return _request(entry["number"], status, entry.get("html_url"), at)

    def _is_of(self, entry: Any, branch: str) -> bool:
        """Return whether an entry is a request of our branch: a fork may have one of the same name.

        Gitea keeps the name of a branch that was deleted in `label` alone.
        """
        try:
            head, base = entry["head"], entry["base"]
            same = type(base["repo"]["id"]) is int and head["repo"]["id"] == base["repo"]["id"]
            deleted = self._settings.forge == "gitea" and head.get("label") == branch
            same_name = head["ref"] == branch or deleted
            return bool(same and same_name and base["ref"] == self._settings.base_branch
                        and type(entry["number"]) is int)  # fmt: skip
        except (TypeError, KeyError):
            return False

    def open(self, branch: str, title: str, body: str) -> ForgeAnswer:
        """See Forge."""
        content = {
            "title": title, "body": body, "head": branch, "base": self._settings.base_branch
        }  # fmt: skip
        return self._ask("POST", f"{self._above}/pulls", content=content)

    def close(self, number: int) -> ForgeAnswer:
        """See Forge."""
        return self._ask("PATCH", f"{self._above}/pulls/{number}", content={"state": "closed"})

    def reason(self, number: int) -> str:
        """See Forge."""
        return self._last_comment(f"{self._above}/issues/{number}/comments")


class GitLabForge(Forge):
    """GitLab, with the project by its path: groups may be nested."""

    scheme = "Bearer"

    def __init__(self, settings: GitApplySettings) -> None:
        super().__init__(settings)
        folder = urlsplit(settings.api_url).path.rstrip("/").removesuffix("/api/v4").strip("/")
        project = "/".join(self._names).removeprefix(f"{folder}/" if folder else "")
        self._above = f"projects/{quote(project, safe='')}"

    def may_push(self) -> str:
        """See Forge. The role of the account in the project or its groups is what counts."""
        answer = self._ask("GET", self._above)
        if answer.status != 200 or not isinstance(answer.data, dict):
            return answer.words
        rights = answer.data.get("permissions")
        roles = rights.values() if isinstance(rights, dict) else ()
        levels = [role.get("access_level") for role in roles if isinstance(role, dict)]
        if any(isinstance(level, int) and level >= _DEVELOPER for level in levels):
            return ""
        return "the account of apply_git.token_file is no Developer of the project, or higher"

    def request_of(self, branch: str) -> PullRequest | None:
        """See Forge."""
        base = self._settings.base_branch
        query = {"state": "all", "source_branch": branch, "target_branch": base}
        answer = self._ask("GET", f"{self._above}/merge_requests", query=query)
        if answer.status != 200 or not isinstance(answer.data, list):
            raise ApplyError(answer.words, _FORGE_HINT)
        mine = [
            entry
            for entry in answer.data
            if isinstance(entry, dict)
            and type(entry.get("iid")) is int
            and (entry.get("source_branch"), entry.get("target_branch")) == (branch, base)
            and type(entry.get("target_project_id")) is int
            and entry.get("source_project_id") == entry["target_project_id"]
        ]
        if not mine:
            return None
        entry = max(mine, key=lambda entry: int(entry["iid"]))
        # `locked` is a request that is being merged.
        status = {"merged": "merged", "closed": "closed"}.get(str(entry.get("state")), "open")
        at = entry.get("merged_at") or entry.get("closed_at") or entry.get("created_at")
        return _request(entry["iid"], status, entry.get("web_url"), at)

    def open(self, branch: str, title: str, body: str) -> ForgeAnswer:
        """See Forge."""
        content = {
            "source_branch": branch,
            "target_branch": self._settings.base_branch,
            "title": title,
            "description": body,
        }
        return self._ask("POST", f"{self._above}/merge_requests", content=content)

    def close(self, number: int) -> ForgeAnswer:
        """See Forge."""
        path = f"{self._above}/merge_requests/{number}"
        return self._ask("PUT", path, content={"state_event": "close"})

    def reason(self, number: int) -> str:
        """See Forge. What GitLab notes of itself ("closed") is none."""
        query = {"sort": "asc", "order_by": "created_at", "per_page": "100"}
        return self._last_comment(f"{self._above}/merge_requests/{number}/notes", query)


def forge_of(settings: GitApplySettings) -> Forge:
    """Return the forge that the settings name."""
    return (GitLabForge if settings.forge == "gitlab" else PullForge)(settings)


def _request(number: int, state: str, url: Any, at: Any) -> PullRequest:
    return PullRequest(
        number=number, state=state, url=safe_url(url), at=scrub(str(at or ""), limit=40)
    )
