"""The work behind the dashboard in three parts, that one process does together or three apart.

`cycle` collects, plans, reports and tells people; `apply` carries out what was approved; `web`
shows and takes wishes. Apart they need a store that several processes can use, and each then has a
role in the database and credentials on the cluster that allow its own part alone.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from dashboard.apply import build_appliers
from dashboard.apply.contract.applier import Applier
from dashboard.apply.contract.kill_switch_status import announcing
from dashboard.apply.power.cap_renewal import CapRenewal
from dashboard.apply.worker.worker import Worker
from dashboard.common.threads import Background, Loop, running_together
from dashboard.cycle.cycle_thread import CycleState, CycleThread
from dashboard.notify.alerts import UrgentRounds
from dashboard.notify.deliver import SINKS, Notifier
from dashboard.notify.report_delivery import ReportRounds
from data.base.clock import utc_now
from data.base.errors import SettingsError, StoreError
from data.settings.all_settings import Settings
from data.store import Store
from data.store.engine.process_locks import SoleHolder

logger = logging.getLogger(__name__)

_WORKER_PAUSE = timedelta(milliseconds=250)
_NOTIFIER_PAUSE = timedelta(seconds=1)
_WORKER_LOOKS, _NOTIFIER_LOOKS = timedelta(seconds=5), timedelta(seconds=15)
"""The pause between looks at the store while this process, its only writer, is idle."""
_REPORT_PAUSE = _RENEWAL_PAUSE = _URGENT_PAUSE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that this process does; `thread` runs the cycles, None without a source.

    `clock` is the time of all of them, `appliers` make changes by it.
    """

    store: Store
    settings: Callable[[], Settings]
    thread: CycleThread | None
    claims: dict[str, SoleHolder]
    working: Loop
    clock: Callable[[], datetime]
    appliers: Callable[[Settings], tuple[Applier, ...]]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Do the parts until the block ends; every thread ends then, or is cut with the process."""
        threads: list[Background] = []
        if "cycle" in self.claims:
            threads += [self.thread] if self.thread is not None else []
            threads += self._beside_cycles(self.claims["cycle"])
        if "apply" in self.claims:
            renewal = CapRenewal(store=self.store, settings=self.settings, clock=self.clock)
            tick = guarded(self.claims["apply"], renewal.renew_once)
            threads += [Loop("trimtab-caps", tick, _RENEWAL_PAUSE), self.working]
        with ExitStack() as stack:
            if "apply" in self.claims:
                threads += stack.enter_context(announcing(self.settings))
            with running_together(threads):
                yield

    def _beside_cycles(self, claim: SoleHolder) -> tuple[Loop, ...]:
        notifier = Notifier(store=self.store, settings=self.settings, clock=self.clock)
        rounds = ReportRounds(store=self.store, settings=self.settings, clock=self.clock)
        urgent = UrgentRounds(
            store=self.store,
            reader=self.store.reader_for_pages(),
            settings=self.settings,
            clock=self.clock,
        )
        return (
            *(
                Loop(
                    f"trimtab-notify-{sink}",
                    when_changed(
                        self.store,
                        guarded(claim, partial(notifier.deliver_once, sink)),
                        else_after=_NOTIFIER_LOOKS,
                    ),
                    _NOTIFIER_PAUSE,
                )
                for sink in SINKS
            ),
            Loop("trimtab-urgent", guarded(claim, urgent.tell_new), _URGENT_PAUSE),
            Loop("trimtab-reports", guarded(claim, rounds.file_due), _REPORT_PAUSE),
        )

    def cycle_state(self) -> CycleState:
        """Return the state of the cycles: of this process, else of the last one in the store."""
        if "cycle" in self.claims:
            return CycleState() if self.thread is None else self.thread.state
        last = self.store.reader.last_cycle()
        return CycleState(last_finished_at=None if last is None else last.finished_at)

    def worker_problem(self) -> str:
        """Return the reason that nothing would be applied now, '' when somebody works."""
        if "apply" in self.claims:
            return self.working.last_error
        try:
            if self.store.sole("apply").is_taken():
                return ""
        except StoreError as error:
            return str(error)
        return "no process applies: start `trimtab serve --only apply`"


def when_changed(
    store: Store, tick: Callable[[], bool], *, else_after: timedelta
) -> Callable[[], bool]:
    """Return the tick that asks the store again once it has changed, or after a while.

    What comes due by time alone, such as a second try, comes so much later at most. Where other
    processes write too the store is asked each time.
    """
    count: int | None = None
    until = 0.0

    def tick_if_changed() -> bool:
        nonlocal count, until
        commits = store.commits
        if commits is not None and commits == count and time.monotonic() < until:
            return False
        busy = tick()
        count, until = commits, time.monotonic() + else_after.total_seconds()
        return busy

    return tick_if_changed


def guarded(claim: SoleHolder, tick: Callable[[], bool]) -> Callable[[], bool]:
    """Return the tick that works only while this process has the claim. Errors: StoreBusyError."""

    def tick_if_ours() -> bool:
        claim.require()
        return tick()

    return tick_if_ours


@contextmanager
def claimed_parts(
    store: Store,
    only: str | None,
    settings: Callable[[], Settings],
    make_thread: Callable[[SoleHolder], CycleThread | None],
    *,
    clock: Callable[[], datetime] = utc_now,
) -> Iterator[Parts]:
    """Claim the parts of this process, all of them without `only`, for as long as the block runs.

    Errors: StoreBusyError when another process does one of them, SettingsError on a store that
    belongs to one process.
    """
    if only is not None and not store.is_shared:
        raise SettingsError(
            f"serve --only {only} needs a store for several processes, and a DuckDB file has one",
            "Give store.url = postgresql+psycopg://…; `trimtab store copy` moves what you have.",
        )
    names = [part for part in ("cycle", "apply") if only in (None, part)]
    with ExitStack() as stack:
        claims = {name: stack.enter_context(store.sole(name)) for name in names}
        appliers = partial(build_appliers, clock=clock)
        worker = Worker(store=store, settings=settings, appliers=appliers, clock=clock)
        tick = guarded(claims["apply"], worker.work_once) if "apply" in claims else worker.work_once
        looking = when_changed(store, tick, else_after=_WORKER_LOOKS)
        working = Loop("trimtab-apply", looking, _WORKER_PAUSE, doing=lambda: worker.doing)
        worker.stopping = lambda: working.stopping
        yield Parts(
            store=store,
            settings=settings,
            thread=make_thread(claims["cycle"]) if "cycle" in claims else None,
            claims=claims,
            working=working,
            clock=clock,
            appliers=appliers,
        )
