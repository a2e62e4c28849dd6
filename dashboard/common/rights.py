"""Rights by role, from the settings; the worker checks them again before it acts.

Pure. The same questions are asked when a button is drawn, when a decision is written and when a
command is carried out, so that a right withdrawn in between counts.
"""

import unicodedata
from collections.abc import Iterable

from dashboard.common.look_alikes import prototypes
from data.base.errors import NotAllowedError
from data.facts.jobs import Job, OwnNames
from data.records.commands import Person
from data.records.recommendations import Recommendation
from data.settings.access import ROLES, AccessSettings, names_and_groups
from data.settings.fields import entries
from data.store.handles.cached_reader import CachedReader
from data.store.handles.tenant_reader import OwnedReader

_ASCII_TWINS = str.maketrans({"0": "o", "1": "l", "i": "l", "|": "l", "m": "rn"})
_READ_ONLY_REFUSAL = "{} asks by a viewer's token, or as a viewer, and so only looks"
_READ_ONLY_OWNER = frozenset({"viewer", "owner"})
RULE = Person(name="trimtab", via="rule")
"""The worker itself, when the settings opted in to automatic rollbacks."""


def role_of(person: Person, access: AccessSettings) -> str:
    """Return the highest role that the settings give to the person or one of their groups.

    Names are compared with names and groups with groups, character by character: another case or
    a look-alike letter is another name. In local mode the account of the server is the admin; in
    open mode everybody looks, and whoever has the store's file is the admin. A token never gives
    more than it was made for: of a viewer, who sees the jobs of others, and an owner, who decides,
    it is an owner who only looks.
    """
    roles = {_role_by_name(person, access), person.max_role} - {""}
    return "owner" if roles == _READ_ONLY_OWNER else min(roles, key=ROLES.index)


def _only_looks(person: Person, access: AccessSettings) -> bool:
    return "viewer" in (_role_by_name(person, access), person.max_role)


def _role_by_name(person: Person, access: AccessSettings) -> str:
    if access.mode == "local":
        return "admin"
    if access.mode == "open":
        return "admin" if person.via == "cli" else "viewer"
    for role in reversed(ROLES[1:]):
        names, groups = names_and_groups(getattr(access, f"{role}s"))
        if person.name in names or groups.intersection(person.groups):
            return role
    return access.default_role


def own_names(person: Person, access: AccessSettings) -> OwnNames:
    """Return by which names a job is the person's own: as its owner, user or a group of theirs.

    A job's owner is the name of a person or of a group; its user in the scheduler is a person's.
    That alone may be the local part of a mail name, of a domain that the settings list.
    """
    local, _, domain = person.name.partition("@")
    users = {person.name, local if domain in entries(access.mail_domains) else ""} - {""}
    owners = {person.name, *person.groups} - {""}
    return OwnNames(owners=frozenset(owners), users=frozenset(users))


def owns(
    person: Person, access: AccessSettings, recommendation: Recommendation, job: Job | None
) -> bool:
    """Return whether the recommendation is about a job of the person's own."""
    if job is None or recommendation.job_id != job.job_id:
        return False
    return own_names(person, access).hold(job)


def view_of(person: Person, access: AccessSettings, reader: CachedReader) -> CachedReader:
    """Return the reader that the person may look through: an owner's sees their own jobs alone."""
    if role_of(person, access) != "owner":
        return reader
    names = own_names(person, access)
    return reader.remember(("own", names), lambda: OwnedReader(reader, names))


def _may_own(person: Person, recommendation: Recommendation, job: Job | None) -> bool:
    """Return whether the job could be the person's own under another spelling of a name.

    A refusal needs doubt only: some sign-ins take a name in any case and pass it on as typed.
    """
    if job is None or recommendation.job_id != job.job_id:
        return False
    user = job.scheduling.user
    mine = {*_mailboxes(person.name), *person.groups}
    return bool(_skeletons(mine) & _skeletons(_mailboxes(job.owner, user)))


def _mailboxes(*names: str) -> set[str]:
    """Return names, and of mail names the part before the `@`, without what follows a `+`."""
    return {*names, *(name.partition("@")[0].partition("+")[0] for name in names if "@" in name)}


def _skeletons(names: Iterable[str]) -> set[str]:
    """Return names as they look: without blanks, marks and unseen characters, twins as one letter.

    The skeleton of Unicode Technical Standard 39, case folded, once as written and once folded
    before: names that a person may take for each other share one.
    """
    table = prototypes()

    def skeleton(name: str) -> str:
        plain = unicodedata.normalize("NFKD", name.translate(table))
        text = "".join(letter for letter in plain if unicodedata.category(letter)[0] not in "CMZ")
        return text.translate(table).casefold().translate(_ASCII_TWINS)

    return {skeleton(form) for name in names for form in (name, name.casefold())} - {""}


def may_see(
    person: Person, access: AccessSettings, recommendation: Recommendation, job: Job | None
) -> bool:
    """Return whether the person may see the recommendation: an owner sees their own jobs only."""
    role = role_of(person, access)
    return role not in ("none", "owner") or (
        role == "owner" and owns(person, access, recommendation, job)
    )


def act_refusal(person: Person, access: AccessSettings, verb: str) -> str:
    """Return the reason that the person, who looks alone, may not do it, '' for none."""
    role = role_of(person, access)
    if role not in ("owner", "approver", "admin"):
        return f"{person.name} is {role or 'none'}: only owners, approvers and admins {verb}"
    return _READ_ONLY_REFUSAL.format(person.name) * _only_looks(person, access)


def decision_refusal(
    person: Person,
    access: AccessSettings,
    recommendation: Recommendation,
    job: Job | None,
    *,
    approving: bool = False,
) -> str:
    """Return the reason that the person may not decide about this recommendation, '' for none."""
    if refusal := act_refusal(person, access, "decide"):
        return refusal
    if role_of(person, access) == "owner" and not owns(person, access, recommendation, job):
        return f"{person.name} may decide about their own jobs only"
    if approving and access.four_eyes and _may_own(person, recommendation, job):
        return f"{person.name} owns the job: with access.four_eyes somebody else approves"
    return ""


def submit_refusal(person: Person, access: AccessSettings) -> str:
    """Return the reason that the person may not submit jobs from the page, '' for none."""
    return act_refusal(person, access, "submit")


def require_right(
    person: Person,
    access: AccessSettings,
    recommendation: Recommendation,
    job: Job | None,
    *,
    approving: bool = False,
) -> None:
    """Refuse (NotAllowedError) who may not decide about this recommendation."""
    reason = decision_refusal(person, access, recommendation, job, approving=approving)
    if reason:
        raise NotAllowedError(reason, "Ask an approver, or have the access settings changed.")


def require_admin(person: Person, access: AccessSettings, what: str = "resume applying") -> None:
    """Refuse (NotAllowedError) who is no admin, for `what` only admins do."""
    if role_of(person, access) != "admin":
        raise NotAllowedError(
            f"{person.name} is {role_of(person, access)}: only admins {what}",
            "Ask one of access.admins.",
        )
