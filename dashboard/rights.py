"""Who may do what: roles from the settings, asked again by the worker before it acts.

Pure. The same questions are asked when a button is drawn, when a decision is written and when a
command is carried out, so that a right withdrawn in between counts.
"""

from data.access_settings import ROLES, AccessSettings, entries
from data.errors import ChangeRefusedError
from data.records.commands import Person
from data.records.decisions import Recommendation
from data.records.jobs import Job

RULE = Person(name="trimtab", via="rule")
"""The worker itself, when the settings opted in to automatic rollbacks."""


def role_of(person: Person, access: AccessSettings) -> str:
    """Give the highest role that the settings give to the person or one of their groups.

    In local mode whoever reaches the loopback address, or has the store's file, is the admin.
    """
    if access.mode == "local":
        return "admin"
    mine = {person.name.casefold(), *(f"group:{one}".casefold() for one in person.groups)}
    for role in reversed(ROLES[1:]):
        listed: str = getattr(access, f"{role}s")
        if mine & {one.casefold() for one in entries(listed)}:
            return role
    return access.default_role


def owns(person: Person, recommendation: Recommendation, job: Job | None) -> bool:
    """Tell whether the job is the person's own: as its owner, user or a group of theirs."""
    if job is None:
        return False
    names = {job.owner, job.scheduler.user if job.scheduler is not None else ""} - {""}
    mine = {person.name.casefold(), person.name.partition("@")[0].casefold()}
    mine |= {one.casefold() for one in person.groups}
    return recommendation.job_id == job.job_id and bool(mine & {name.casefold() for name in names})


def may_look(
    person: Person, access: AccessSettings, recommendation: Recommendation, job: Job | None
) -> bool:
    """Tell whether the person may see the recommendation: an owner sees their own jobs only."""
    role = role_of(person, access)
    return role not in ("none", "owner") or (role == "owner" and owns(person, recommendation, job))


def why_not_submit(person: Person, access: AccessSettings) -> str:
    """Give why the person may not submit jobs from the page, '' when they may."""
    role = role_of(person, access)
    if role in ("owner", "approver", "admin"):
        return ""
    return f"{person.name} is {role or 'none'}: only owners, approvers and admins submit"


def why_not(
    person: Person,
    access: AccessSettings,
    recommendation: Recommendation,
    job: Job | None,
    *,
    approving: bool = False,
) -> str:
    """Give why the person may not decide about this recommendation, '' when they may."""
    role = role_of(person, access)
    mine = owns(person, recommendation, job)
    if role not in ("owner", "approver", "admin"):
        return f"{person.name} is {role or 'none'}: only owners, approvers and admins decide"
    if role == "owner" and not mine:
        return f"{person.name} may decide about their own jobs only"
    if approving and access.four_eyes and mine:
        return f"{person.name} owns the job: with access.four_eyes somebody else approves"
    return ""


def require_right(
    person: Person,
    access: AccessSettings,
    recommendation: Recommendation,
    job: Job | None,
    *,
    approving: bool = False,
) -> None:
    """Refuse (ChangeRefusedError) who may not decide about this recommendation."""
    reason = why_not(person, access, recommendation, job, approving=approving)
    if reason:
        raise ChangeRefusedError(reason, "Ask an approver, or have the access settings changed.")


def require_admin(person: Person, access: AccessSettings) -> None:
    """Refuse (ChangeRefusedError) who may not stop or resume applying."""
    if role_of(person, access) != "admin":
        raise ChangeRefusedError(
            f"{person.name} is {role_of(person, access)}: only admins resume applying",
            "Ask one of access.admins.",
        )
