"""Keeps power caps alive while their jobs run: the agents let go of what is not renewed.

Nothing is renewed while applying is switched off or stopped, or when no fresh sample says which
jobs run: the caps then lapse and the boards' own limits return, which is the safe side.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from dashboard.apply.contract.shared_kill_switch import is_stopped
from data.base.clock import utc_now
from data.facts.cluster_names import name_in_cluster
from data.settings.all_settings import Settings
from data.settings.multi_cluster import settings_by_cluster
from data.store import Store

_READING_TIMEOUT = timedelta(hours=1)
_RUNNING_WITHIN = timedelta(minutes=30)
"""A job counts as running when it was seen this shortly before the newest sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapRenewal:
    """Renews the caps of running jobs of every cluster, under the settings of the moment."""

    store: Store
    settings: Callable[[], Settings]
    clock: Callable[[], datetime] = utc_now

    def renew_once(self) -> bool:
        """Prolong the caps of running jobs and drop the others'. Errors: StoreError, ApplyError.

        Always False: there is never more to do at once.
        """
        settings = self.settings()
        capping = {
            cluster: local.apply_power
            for cluster, local in settings_by_cluster(settings).items()
            if local.apply_power.enabled
        }
        if not (settings.apply.enabled and capping):
            return False
        newest = self.store.reader.latest_sample_at()
        if newest is None or self.clock() - newest > _READING_TIMEOUT:
            return False
        if is_stopped(Path(settings.apply.stop_file), self.store) is not None:
            return False
        # Deferred: only a site that caps power needs it.
        from dashboard.apply.power.applier import PowerCapApplier

        live = self.store.reader.jobs(seen_since=newest - _RUNNING_WITHIN)
        for cluster, local in capping.items():
            mine = {name_in_cluster(job.job_id) for job in live if job.cluster == cluster}
            PowerCapApplier(local, clock=self.clock).renew(live_jobs=mine)
        return False
