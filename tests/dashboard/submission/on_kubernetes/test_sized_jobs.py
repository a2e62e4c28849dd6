"""docs/examples/size_jobs.py against a real API server and a real Trimtab.

The server is 1.20.2, which knows no suspended Job: it drops the field, so that a Job is one that
runs. JobSets and TrainJobs are custom kinds; the operator's own checks are not here.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from beds.api_clients import LOCAL, guarded_api
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_submission import settings_of
from factories import make_collected

from collectors.kubernetes.jobs import kubernetes_collector
from collectors.shared.collector import Window
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.store import open_store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
EXAMPLE = Path(__file__).parents[4] / "docs/examples/size_jobs.py"
