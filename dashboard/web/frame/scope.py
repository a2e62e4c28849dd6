"""Scope of every page: a time range and a part of the jobs, in header and address.

The header asks for it (`ask_scope`), pages read it (`current_scope`), and links carry it on. A page
that does not follow a filter says so.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields

import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_world
from dashboard.web.frame.address_filters import ALL, choose, held
from dashboard.web.frame.navigation import DAYS, JOBS, MONTH
from data.facts.cluster_names import MAIN_CLUSTER
from data.facts.jobs import Job

USUAL_DAYS = 7
"""The range that a page opens with."""
_DAYS = ("1", "7", "30", "90")
_LABELS = {
    "namespace": "Namespace or partition",
    "team": "Team (account)",
    "model": "GPU model",
    "cluster": "Cluster",
}
_WORDS = {"namespace": "namespace", "team": "team", "model": "GPU model", "cluster": "cluster"}
SCOPE_WORDS = JOBS | {DAYS, MONTH}
"""Names of the header's choices in an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The last `days`; the jobs of a namespace, team, GPU model and cluster; '' chooses all."""

    days: int = USUAL_DAYS
    namespace: str = ""
    team: str = ""
    model: str = ""
    cluster: str = ""

    @property
    def chosen(self) -> dict[str, str]:
        """The filters of jobs that are set, by name."""
        values = {name: str(getattr(self, name)) for name in _LABELS}
        return {name: value for name, value in values.items() if value}

    def describe(self, followed: Collection[str] = JOBS) -> str:
        """Return those filters of jobs that are followed in words, '' for all jobs."""
        terms = {name: value for name, value in self.chosen.items() if name in followed}
        return ", ".join(f"{_WORDS[name]} {value}" for name, value in terms.items())

    def takes(self, job: Job | None) -> bool:
        """Return whether a job is looked at; of an unknown one nothing fits a filter."""
        if job is None:
            return not self.chosen
        facts = {
            "namespace": job.namespace,
            "team": job.scheduling.account,
            "model": job.gpu_model,
            "cluster": job.cluster or MAIN_CLUSTER,
        }
        return all(facts[name] == value for name, value in self.chosen.items())

    def address(self) -> dict[str, str]:
        """Return the query of an address for it; the usual range and all jobs are left out."""
        usual = {"days": str(USUAL_DAYS)} | dict.fromkeys(_LABELS, "")
        values = {field.name: str(getattr(self, field.name)) for field in fields(self)}
        return {name: value for name, value in values.items() if value != usual[name]}


def current_scope() -> Scope:
    """Return the scope of the header; all jobs and the usual range where it asks nothing."""
    values = {name: str(st.session_state.get(name, ALL)) for name in _LABELS}
    return Scope(
        days=int(st.session_state.get("days", USUAL_DAYS)),
        **{name: "" if value == ALL else value for name, value in values.items()},
    )


def scoped_jobs() -> dict[str, Job] | None:
    """Return the jobs that are looked at by id, None without a filter: that is the whole fleet."""
    reader, scope = current_world().reader, current_scope()
    if not scope.chosen:
        return None
    return reader.remember(
        ("scoped jobs", scope),
        lambda: {job.job_id: job for job in reader.jobs() if scope.takes(job)},
    )


def ask_days() -> None:
    """Ask for the range."""
    st.caption("Days", width="content")
    st.selectbox(
        "Days",
        _DAYS,
        _DAYS.index(str(USUAL_DAYS)),
        key=DAYS,
        bind="query-params",
        width=68,
        label_visibility="collapsed",
        persist_state="session",
    )


def ask_filters() -> None:
    """Ask behind one button for the filters of jobs."""
    choices = current_world().reader.job_choices()
    options = {name: [ALL, *choices.get(name, ())] for name in _LABELS if asks_for(name, choices)}
    # A page that was opened by its address knows its filters only when they are drawn, below.
    current = {name: held(name) for name in options}
    filters = [current[name] for name, values in options.items() if current[name] in values[1:]]
    label = markdown(", ".join(filters) or "All jobs")
    with st.popover(label, icon=":material/filter_list:", width="content"):
        for name, values in options.items():
            choose(_LABELS[name], values, name, persists=True)


def asks_for(name: str, choices: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a filter has anything to choose: of one cluster there is nothing."""
    return name != "cluster" or len(choices.get(name, ())) > 1  # none in answers kept before


def scope_note(followed: Collection[str]) -> None:
    """Show the filters that narrow this page, and those that it does not follow."""
    scope = current_scope()
    names = [_WORDS[name] for name in scope.chosen if name not in followed]
    icon = ":material/filter_list:"
    if terms := scope.describe(followed):
        st.caption(f"{icon} **Filtered**: {markdown(terms)}. Sums are of these jobs alone.")
    if names:
        does = "does" if len(names) == 1 else "do"
        st.caption(f"{icon} The chosen {' and '.join(names)} {does} not change this page.")
