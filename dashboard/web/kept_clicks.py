"""No press of a button is lost to a run that is given up.

A press reaches the server once, as a trigger in the request that it makes; the browser then
forgets it. Streamlit (1.67) drops it wherever that request is given up before its callback ran:

* `AppSession.request_rerun` stops the runner at every request for the whole page (fast reruns,
  the default), and `ScriptRequests.request_stop` forgets what waits in it. A press on a card waits
  there: a fragment's request is taken up only when the run before it has ended.
* A runner that has taken a request gives it up for a newer one at the yield point that opens
  `SafeSessionState.on_script_will_rerun`, with fast reruns and without.
* A callback that is stopped at a yield point takes along those that were to run after it.
* A request for a fragment that the last run did not draw is discarded.
* A tab that is closed or reloaded stops the runner.

So a session notes each press until its callback is about to run, and puts it, with the values that
the page held, into every request until then. Only one run gets it: `Presses.claim`. What is lost
still is a press that the server has not read when the tab's connection ends, or the server.

Fast reruns stay on. Without them a request for the whole page can follow a fragment's run in the
same thread, where `_fragment` has set `context_dg_stack` to the fragment's place and nothing sets
it back after a run that was not interrupted: the whole page is then drawn into the card (seen as
elements below [0, 6, 0, 5]), and the browser ends with "Bad delta path index".
"""

import threading
from typing import Any

from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime import websocket_session_manager
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner import get_script_run_ctx, script_runner
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequest, ScriptRequests
from streamlit.runtime.state import SessionState

from dashboard.web.script_loop import ScriptLoop


class Presses:
    """The presses of one session that no callback has seen, with what the page held then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._latest = ClientState()

    def complete(self, asked: ClientState) -> ClientState:
        """Note the presses of a request; give it with those added that still wait."""
        whole = ClientState()
        whole.CopyFrom(asked)
        with self._lock:
            own = {widget.id: widget for widget in whole.widget_states.widgets}
            for entry in self._latest.widget_states.widgets if self._waiting else ():
                if entry.id not in own:
                    whole.widget_states.widgets.append(entry)
                elif entry.id in self._waiting:
                    own[entry.id].CopyFrom(entry)
            self._waiting |= {
                widget.id for widget in whole.widget_states.widgets if _pressed(widget)
            }
            self._latest = whole
        return whole

    def claim(self, states: WidgetStates | None) -> WidgetStates | None:
        """Return the states for one run's callbacks, without presses that another run has had."""
        if states is None:
            return None
        with self._lock:
            theirs = [
                widget
                for widget in states.widgets
                if not _pressed(widget) or widget.id in self._waiting
            ]
            self._waiting -= {their.id for their in theirs if _pressed(their)}
        return WidgetStates(widgets=theirs)

    def unheard(self) -> ClientState | None:
        """Return a request for the whole page that carries the presses that wait.

        None if none do.
        """
        with self._lock:
            if not self._waiting:
                return None
            again = ClientState()
            again.CopyFrom(self._latest)
        again.fragment_id = ""
        return again


def _pressed(state: WidgetState) -> bool:
    return state.WhichOneof("value") == "trigger_value" and bool(state.trigger_value)


class _Requests(ScriptRequests):
    """Requests to a runner, whose callbacks run to their end before it looks at a newer one."""

    in_callbacks = False

    def on_scriptrunner_yield(self) -> ScriptRequest | None:
        """Return what the run must stop for: nothing while its callbacks run."""
        return None if self.in_callbacks else super().on_scriptrunner_yield()


class _State(SessionState):
    """A session's state: one run at a time runs its callbacks, and no press is heard twice."""

    def __init__(self) -> None:
        super().__init__()
        self.presses = Presses()
        self._turn = threading.RLock()

    def on_script_will_rerun(self, fresh_widget_states: WidgetStates | None, **more: Any) -> None:
        """Take in what the browser sent and run the callbacks."""
        context = get_script_run_ctx()
        if context is None or not isinstance(context.script_requests, _Requests):
            super().on_script_will_rerun(fresh_widget_states, **more)
            return
        with self._turn:
            # A newer request may have come while this run waited for its turn.
            context.yield_check()
            context.script_requests.in_callbacks = True
            try:
                super().on_script_will_rerun(self.presses.claim(fresh_widget_states), **more)
            finally:
                context.script_requests.in_callbacks = False


class _Session(AppSession):
    """A session that asks again for what was given up, and whose scripts hold no descriptor."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        state = _State()
        self._session_state = state
        self._presses = state.presses
        self._ending = False
        self._script_event_loop.close()
        self._script_event_loop = ScriptLoop()

    def request_rerun(self, client_state: ClientState | None) -> None:
        """Ask for a run: with presses that wait, and of the whole page if its part is gone."""
        if client_state is not None:
            client_state = self._presses.complete(client_state)
            if client_state.fragment_id and not self.has_fragment(client_state.fragment_id):
                client_state = self._presses.unheard() or client_state
        super().request_rerun(client_state)

    def request_script_stop(self) -> None:
        """Stop, and run once more for presses that wait: the tab may be gone, they were made."""
        super().request_script_stop()
        again = None if self._ending else self._presses.unheard()
        if again is not None:
            super().request_rerun(again)

    def shutdown(self) -> None:
        """End the session."""
        self._ending = True
        super().shutdown()


def keep_clicks() -> None:
    """Have Streamlit make its sessions of these classes, for which it has no setting."""
    for module, name, own in (
        (script_runner, "ScriptRequests", _Requests),
        (websocket_session_manager, "AppSession", _Session),
    ):
        setattr(module, name, own)
