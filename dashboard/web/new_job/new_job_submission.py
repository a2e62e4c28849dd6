"""Submitting from the New job page, behind the same gate as the command line.

What was shown is what is sent: the proposal stays in the session until it is sent or replaced. Both
buttons act in the callback of their click, before the page is drawn.
"""

from collections.abc import Callable

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.common.rights import submit_refusal
from dashboard.submission.job.feasible_plans import family_of
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.submit.proposal import SubmissionProposal, propose
from dashboard.submission.submit.submit import submission_refusal, submit
from dashboard.submission.submit.waiting_jobs import waiting_jobs
from dashboard.submission.targets.choose_target import target_name, target_of
from dashboard.web.access.identity import acting, ask_name, current_world, remember_name, signed_in
from dashboard.web.frame.page import table
from data.base.errors import ChangeRefusedError, NotSignedInError, TrimtabError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.commands import Person
from data.settings.access import AccessSettings

_PROPOSAL = "new-job-proposal"
_MESSAGE_KEY = "new-job-said"
_BY = "new-job-by"
_UNSEEN = "Nothing was sent: the preview has changed. Look at it, then submit."


def submission_part(job: JobFile) -> None:
    """Show the preview and the submit button, and the jobs submitted so far."""
    world = current_world()
    settings = world.decision_service.settings()
    person = signed_in(settings.access)
    if person is None:
        return
    st.header("Submit")
    reason = submission_refusal(settings) or submit_refusal(person, settings.access)
    if reason:
        st.info(markdown(reason))
    name, preview, send = st.columns([3, 1, 1], vertical_alignment="bottom")
    with name:
        by = ask_name(_BY) if settings.access.mode == "local" else person.name
    preview.button(
        "Preview",
        width="stretch",
        key="new-job-preview",
        disabled=bool(submit_refusal(person, settings.access)),
        on_click=_preview,
        args=(job,),
    )
    proposal: SubmissionProposal | None = st.session_state.get(_PROPOSAL)
    send.button(
        "Submit",
        width="stretch",
        type="primary",
        key="new-job-submit",
        disabled=bool(reason) or proposal is None or not by.strip(),
        help=markdown(reason) or "Preview first; what is shown is what is sent.",
        on_click=_submit,
        args=(proposal,),
    )
    if result := st.session_state.get(_MESSAGE_KEY):
        (st.success if result[0] else st.error)(markdown(result[1]))
    if proposal is not None:
        for warning in proposal.warnings:
            st.warning(markdown(warning))
        for note in proposal.notes:
            st.caption(markdown(note))
        st.code(proposal.manifest.text, language=None)
    _submitted()


def _preview(job: JobFile) -> None:
    st.session_state.pop(_MESSAGE_KEY, None)
    _attempt(lambda person: _propose(job, person))


def _submit(visible: SubmissionProposal | None) -> None:
    """Send what the page showed when Submit was pressed, once.

    The press may come a second time, after another preview, or past a button that is switched off.
    """
    stored: SubmissionProposal | None = st.session_state.get(_PROPOSAL)
    if visible is None or stored is None:
        return
    if stored is not visible:
        st.session_state[_MESSAGE_KEY] = (False, _UNSEEN)
        return
    del st.session_state[_PROPOSAL]
    _attempt(lambda person: _send(visible, person))


def _attempt(action: Callable[[Person], None]) -> None:
    """Run a command for who asked; its refusal is kept until the page is drawn."""
    try:
        person = acting(current_world().decision_service.settings().access, _BY)
        if person is not None:
            action(person)
    except NotSignedInError:
        return  # the page that is drawn next shows the way in
    except TrimtabError as error:
        st.session_state[_MESSAGE_KEY] = (False, str(error))


def _propose(job: JobFile, person: Person) -> None:
    """Work out where the job would run: asks the cluster, by the account that submits."""
    world = current_world()
    settings = world.decision_service.settings()
    _require_submitter(person, settings.access)
    target = target_of(settings, target_name(settings), clock=world.clock)
    st.session_state[_PROPOSAL] = propose(
        job,
        target,
        settings=settings.submit,
        peaks=world.store.reader.measured_peaks(family_of(job.training_job)),
        waiting=waiting_jobs(world.store.reader, load_gpu_catalogue()),
        by=person.name,
        now=world.clock(),
    )


def _require_submitter(person: Person, access: AccessSettings) -> None:
    refusal = submit_refusal(person, access)
    if refusal:
        raise ChangeRefusedError("the job was not submitted", refusal)


def _send(proposal: SubmissionProposal, person: Person) -> None:
    world = current_world()
    settings = world.decision_service.settings()
    _require_submitter(person, settings.access)
    target = target_of(settings, proposal.submission.target, clock=world.clock)
    now = world.clock()
    sent = submit(proposal, target, world.store, settings=settings, by=person.name, now=now)
    remember_name(person.name)
    st.session_state[_MESSAGE_KEY] = (
        True,
        f"Submitted {sent.submission_id} as {sent.latest.job_id}.",
    )


def _submitted() -> None:
    submissions = current_world().store.reader.submissions()
    if not submissions:
        return
    st.header("Submitted so far")
    table(
        pd.DataFrame(
            [
                {
                    "id": entry.submission_id,
                    "name": entry.name,
                    "state": str(entry.state),
                    "job": entry.latest.job_id,
                    "GPUs": entry.latest.plan.gpus,
                    "GPU type": entry.latest.plan.gpu_type,
                    "attempts": len(entry.attempts),
                    "by": entry.submitted_by,
                    "reason": entry.latest.reason,
                }
                for entry in submissions
            ]
        ),
        "submissions",
    )
