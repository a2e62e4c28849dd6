"""`trimtab findings apply|rollback|reapply` and `trimtab apply status|stop|resume|work`."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dashboard.apply.contract.kill_switch import resume as resume_now
from dashboard.apply.contract.kill_switch import stop as stop_now
from dashboard.apply.contract.kill_switch import stopped
from dashboard.apply.contract.kill_switch_status import (
    announcing,
    applying_process,
    is_obeyed,
    stop_file_of,
)
from dashboard.apply.contract.shared_kill_switch import STOP, is_stopped
from dashboard.apply.contract.shared_kill_switch import ask as ask_switch
from dashboard.apply.contract.wording import STATE_WORDS, change_words, is_forward
from dashboard.apply.worker.worker import Worker
from dashboard.cli.terminal.context import (
    ask,
    ask_holder,
    asks_a_server,
    decision_service_of,
    open_for_reading,
    person_of,
    settings_of,
)
from dashboard.cli.terminal.interrupts import CONTINUATION_HINT, SignalExit, ending_by_signal
from dashboard.cli.terminal.output import FINDINGS, print_rows, say
from dashboard.common.replay_clock import present
from dashboard.common.threads import running_together
from dashboard.notify.deliver import Notifier
from data.base.clock import utc_now
from data.base.errors import StoreBusyError
from data.facts.cluster_names import named_in
from data.records.lifecycle import OPEN, State
from data.settings.all_settings import Settings
from data.settings.multi_cluster import settings_by_cluster
from data.settings.store import is_postgres_url
from data.store import Store, open_store
from data.store.handles.remote_store import ServedStore

if TYPE_CHECKING:
    from dashboard.decisions.requests import WishOutcome

_SUCCESS_STATES = frozenset({State.APPLIED, State.ROLLED_BACK, State.VERIFIED, State.KEPT})
_QUIET_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
_SIGNAL_GRACE_SECONDS = 10.0
"""So long a target that cannot be left between two steps is waited for after a signal."""


def change(options: argparse.Namespace) -> int:
    """Make a change, undo it or make it again, and say what came of it; or write its file."""
    if asks_a_server(options):
        return _left_to_server(ask(options, None))
    with open_for_reading(settings_of(options)) as store:
        outcome = ask(options, store)
        if outcome.file is not None:
            say(outcome.file)
            return 0
        if not outcome.fresh:
            at = f"{outcome.at:%Y-%m-%d %H:%M:%S}Z"
            say(f"already asked for by {outcome.by} at {at}", file=sys.stderr)
        return _work_until_known(options, store, outcome.digest)


def _left_to_server(outcome: "WishOutcome") -> int:
    """Print the request to a server: its worker carries it out."""
    if outcome.file is not None:
        say(f"{outcome.file} on the host of the server")
        return 0
    say(f"{outcome.recommendation_id} {outcome.state}: see trimtab findings show {outcome.finding}")
    return FINDINGS if State(outcome.state) in OPEN else 0


def _work_until_known(options: argparse.Namespace, store: Store, digest: str) -> int:
    """Run the worker here until the outcome is known or the command has to wait for longer."""
    give_up = time.monotonic() + 60 * (
        settings_of(options).settings.apply.rollout_timeout_minutes + 1
    )
    reason = ""
    with _working(options, store) as (worker, ending):
        while True:
            if worker is not None:
                worker.work_once()
            stored = store.reader.recommendation(digest, now=present(store.reader))
            status = store.reader.commands(digest)[-1]
            over = _is_over(worker, ending) or time.monotonic() > give_up
            if State(stored.state) not in OPEN or over or (status.held and _is_held(status.held)):
                break
            if status.held not in ("", reason):
                reason = status.held
                say(f"{stored.state}: {reason}", file=sys.stderr)
            time.sleep(_PAUSE_SECONDS)
    if worker is not None:
        _tell_people(options, store)
    is_open = State(stored.state) in OPEN
    # What holds back a later look at a change says nothing of its outcome.
    detail = (status.held if is_open else "") or _last_detail(store, digest, stored.state)
    say(f"{stored.recommendation.recommendation_id} {stored.state}" + f": {detail}" * bool(detail))
    if is_open:
        _say_what_is_open(store, digest)
        if ending.told:
            return ending.exit_code
    if stored.state in (State.REFUSED, State.ROLLBACK_REFUSED):
        return 1
    return 0 if stored.state in _SUCCESS_STATES else FINDINGS


def _tell_people(options: argparse.Namespace, store: Store) -> int:
    """Send the messages that wait; give their number."""
    notifier = Notifier(store=store, settings=lambda: settings_of(options).settings)
    sent = 0
    while notifier.deliver_once():
        sent += 1
    return sent


def _is_over(worker: Worker | None, ending: SignalExit) -> bool:
    """Return whether a command that was told to end may leave the target of its change."""
    unsafe = worker is not None and worker.unsafe
    return ending.told and (not unsafe or ending.told_for_seconds > _SIGNAL_GRACE_SECONDS)


@contextmanager
def _working(
    options: argparse.Namespace, store: Store
) -> Iterator[tuple[Worker | None, SignalExit]]:
    """Yield a worker that stops when the process is told to end, and whether it was.

    The process that holds a store has a worker of its own: none is yielded beside it.
    """
    if isinstance(store, ServedStore):
        with ending_by_signal(str) as ending:
            yield None, ending
        return

    def settings() -> Settings:
        return settings_of(options).settings

    worker = Worker(store=store, settings=settings)
    with (
        announcing(settings) as threads,
        running_together(threads),
        ending_by_signal(lambda: worker.doing) as ending,
    ):
        worker.stopping = lambda: ending.told
        yield worker, ending


def _say_what_is_open(store: Store, digest: str = "") -> None:
    """Say of each command under way how far it came, and who goes on with it."""
    for entry, state in store.reader.states().items():
        if state in OPEN and digest in ("", entry):
            rows = store.reader.journal(digest=entry)
            last = f"{rows[-1].event}: {rows[-1].detail}" if rows else "nothing was sent"
            say(f"{entry[:12]} is {state}; last {last}. {CONTINUATION_HINT}", file=sys.stderr)


def _is_held(reason: str) -> bool:
    """Return whether a command waits for a person or the clock, not for its own effect."""
    return reason.startswith("applying is") or "(apply." in reason or "no applier" in reason


def _last_detail(store: Store, digest: str, state: str) -> str:
    """Return the words of the row that led to the state, else of the last one."""
    rows = store.reader.journal(digest=digest)
    last = rows[-1].detail if rows else ""
    return next((row.detail for row in reversed(rows) if row.event == state), last)


def status(options: argparse.Namespace) -> int:
    """Show the switches and the commands that are not finished."""
    loaded = settings_of(options)
    rows = _switches(loaded.settings)
    with open_for_reading(loaded) as store:
        states = store.reader.states()
        for entry in store.reader.commands():
            if not entry.finished:
                command = entry.command
                stored = store.reader.recommendation(command.digest, now=utc_now())
                again = is_forward(command, store.reader.commands(command.digest)[0].command)
                words = STATE_WORDS[states[command.digest]]
                rows.append(
                    {
                        "what": f"{stored.recommendation.recommendation_id}: "
                        + change_words(stored.recommendation, back=not again),
                        "state": words + (f": {entry.held}" if entry.held else ""),
                    }
                )
    print_rows(rows, options.format, columns=("what", "state"), empty="")
    return 0


def _switches(settings: Settings) -> list[dict[str, object]]:
    path = stop_file_of(settings)
    stop_state = stopped(path)
    targets: list[dict[str, object]] = [
        {
            "what": named_in(f"{section}.enabled", cluster),
            "state": _on(getattr(local, section).enabled),
        }
        for cluster, local in settings_by_cluster(settings).items()
        for section in ("apply_kubernetes", "apply_git", "apply_slurm", "apply_power")
    ]
    return [
        {"what": "apply.enabled", "state": _on(settings.apply.enabled)},
        *targets,
        {
            "what": f"stop file {path}",
            "state": stop_state.describe() if stop_state else "absent: not stopped",
        },
    ]


def _on(enabled: bool) -> str:
    return "on" if enabled else "off"


def stop(options: argparse.Namespace) -> int:
    """Stop all applying at once, and say who obeys; 1 when nobody does.

    Works while a server holds the store: the file is made where that server looks for it.
    """
    loaded = settings_of(options)
    url = loaded.settings.store.url
    shared = is_postgres_url(url)
    server = None if shared else applying_process(url)
    path = server.stop_file if server else stop_file_of(loaded.settings)
    say(f"{stop_now(path, by=options.by, reason=options.reason).describe()}; the file is {path}")
    if shared:
        with open_for_reading(loaded) as store:
            ask_switch(store, STOP, by=options.by, at=utc_now(), reason=options.reason)
            obeyed = store.sole("apply").is_taken()
        who = "the process that applies from this store asks it before everything it sends"
    else:
        obeyed = server is not None and is_obeyed(url)
        who = f"process {server.process} has stopped" if server else ""
    if obeyed:
        say(who)
        return 0
    problem = (
        f"process {server.process} applies from this store and does not see the file"
        if server
        else "no running process applies from this store, so none obeys now; it will hold for one "
        "that is started with these settings"
    )
    say(f"{problem}. A server elsewhere: give its --settings or --store", file=sys.stderr)
    return 1


def resume(options: argparse.Namespace) -> int:
    """Let applying go on."""
    loaded = settings_of(options)
    url = loaded.settings.store.url
    shared = is_postgres_url(url)
    server = None if shared else applying_process(url)
    path = server.stop_file if server else stop_file_of(loaded.settings)
    if stopped(path) is None and not shared:
        say("applying was not stopped")
        return 0
    try:
        with open_for_reading(loaded) as store:
            if ask_holder(options, store, "DELETE", "/api/v1/stop") is None:
                was_stopped = decision_service_of(options, store).resume(person_of(options))
                if not was_stopped:
                    print("applying was not stopped")
                    return 0
            elif stopped(path) is not None:  # the holder has another stop file
                resume_now(path)
    except StoreBusyError:
        if shared:  # the stop stands in its record
            raise
        # What holds the store answers no commands; it sees the file go and puts it into the audit.
        resume_now(path)
    say("applying goes on")
    return 0


def work(options: argparse.Namespace) -> int:
    """Carry out what is due, watch and measure what was applied, tell people, and end."""
    loaded = settings_of(options)
    with open_store(loaded.settings.store.url, create=False) as store:
        visits, quiet_since, switch = 0, time.monotonic(), None
        stop_path = stop_file_of(settings_of(options).settings)
        with _working(options, store) as (worker, ending):
            # What was held by the kill switch until a moment ago comes due within half a second.
            while not _is_over(worker, ending) and (
                ending.told or time.monotonic() - quiet_since < _QUIET_SECONDS
            ):
                if worker is not None and worker.work_once():
                    visits += 1
                    # What is stopped comes due twice a second, for as long as it is stopped.
                    if (switch := is_stopped(stop_path, store)) is None:
                        quiet_since = time.monotonic()
                else:
                    time.sleep(_PAUSE_SECONDS)
        if ending.told:
            _say_what_is_open(store)
            return ending.exit_code
        if switch:
            say(switch.describe(), file=sys.stderr)
            _say_what_is_open(store)
        sent = _tell_people(options, store)
    say(f"{visits} visits to commands, {sent} messages")
    return 0
