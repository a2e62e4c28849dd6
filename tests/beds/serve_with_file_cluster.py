"""`trimtab` with one applier more: the cluster in the file that TRIMTAB_TEST_CLUSTER names."""

import os
import sys
from pathlib import Path

from beds.file_cluster import FileApplier, FileCluster

from dashboard.apply import APPLIERS, ApplierSource
from dashboard.cli import main

if __name__ == "__main__":
    cluster = FileCluster(Path(os.environ.pop("TRIMTAB_TEST_CLUSTER")))
    APPLIERS["file"] = ApplierSource(
        enabled=lambda _settings: True, make=lambda _settings, _clock: FileApplier(cluster)
    )
    sys.exit(main())
