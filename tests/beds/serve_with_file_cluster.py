"""`trimtab` with one applier more: the cluster in the file that TRIMTAB_TEST_CLUSTER names.

TRIMTAB_TEST_SLOW, in seconds, is how much longer each card takes to draw: a loaded server.
"""

import os
import time
from pathlib import Path
from typing import Any

from beds.file_cluster import FileApplier, FileCluster

from dashboard.apply import APPLIERS, ApplierSource
from dashboard.cli import program
from dashboard.decisions.service import DecisionService

if __name__ == "__main__":
    cluster = FileCluster(Path(os.environ.pop("TRIMTAB_TEST_CLUSTER")))
    APPLIERS["file"] = ApplierSource(
        enabled=lambda _settings: True, make=lambda _settings, _clock: FileApplier(cluster)
    )
    slow = float(os.environ.pop("TRIMTAB_TEST_SLOW", "0"))
    why_not = DecisionService.why_not

    def _slowly(decision_service: DecisionService, *arguments: Any, **named: Any) -> str:
        time.sleep(slow)
        return why_not(decision_service, *arguments, **named)

    DecisionService.why_not = _slowly  # type: ignore[method-assign]
    program()
