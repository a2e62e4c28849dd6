"""A store filled by one cycle, servers on copies of it, and a real Chromium."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from beds.demo_store import DEMO_END, made_once
from beds.folder_ends import FolderEnds
from beds.ports import kept_port
from beds.small_page import Tab, open_tab, serving
from beds.stated_time import ahead_of_the_machine, clock_ahead, clock_at
from beds.stores import DUCKDB, Stores
from browser.bed import (
    HOSTILE_JOB,
    HOSTILE_NAME,
    PATIENCE,
    STEADY_JOBS,
    Server,
    Visitor,
    running_server,
    watched_tab,
)
from factories import make_collected, make_job, make_samples
from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from data.base.clock import floor_to_slot, utc_now
from data.facts.collected import Collected
from data.facts.jobs import WorkloadKind
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.store import StoreSettings

STEP_SECONDS = 300
SIZE: ViewportSize = {"width": 1360, "height": 1000}
# Taking pictures is no test: it writes into docs.
collect_ignore = [] if os.environ.get("TRIMTAB_SCREENSHOTS") == "1" else ["test_pictures.py"]
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session", autouse=True)
def page_time() -> Iterator[None]:
    """The product's clock of these tests and their servers begins at `DEMO_END`."""
    with clock_at(DEMO_END):
        yield


@pytest.fixture(scope="module")
def machine_time() -> Iterator[None]:
    """The product's clock is the machine's, as that of another server is."""
    with clock_ahead(-ahead_of_the_machine()):
        yield


def fill(
    url: str, *, nodes: int, days: int, extra: Callable[[datetime], Collected] | None = None
) -> None:
    """Keep days of a simulated fleet, and what `extra` gives, and run one full cycle on it."""
    settings = Settings(store=StoreSettings(url=url), planning=PlanningSettings())
    now = floor_to_slot(utc_now(), STEP_SECONDS)
    fleet = SimulatedFleet(seed=7, nodes=nodes)
    source = SimulatedFleetCollector(fleet=fleet, step_seconds=STEP_SECONDS)
    world = build_world(settings)
    with world.store as store:
        store.keep(source.collect(Window(start=now - timedelta(days=days), end=now)))
        if extra is not None:
            store.keep(extra(now))
        run_cycle(world, now=now)


def known_jobs(now: datetime) -> Collected:
    """A day of three idle jobs; one's every label tries to be code."""
    names = (HOSTILE_JOB, *(f"{STEADY_JOBS}notebook-{number}" for number in range(2)))
    jobs = [
        make_job(
            name,
            name=name,
            namespace="steady",
            kind=WorkloadKind.TRAINING,
            gpu_count=2,
            first_seen_at=now - timedelta(days=1),
            last_seen_at=now,
        )
        for name in names
    ]
    jobs[0] = replace(
        jobs[0],
        name=HOSTILE_NAME,
        namespace="<b onclick=window.hacked=4>",
        owner="=cmd|' /C calc'!A0",
    )
    idle = [
        make_samples(gpus=2, minutes=24 * 60, job_id=name, end=now, utilization_ratio=0.0).assign(
            gpu_uuid=lambda frame, number=number: f"K{number}-" + frame["gpu_uuid"]
        )
        for number, name in enumerate(names)
    ]
    return make_collected(pd.concat(idle, ignore_index=True), tuple(jobs))


@pytest.fixture(scope="session")
def filled_store(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three days of a small fleet and of three idle jobs, one with a hostile name."""
    make = partial(fill, nodes=2, days=3, extra=known_jobs)
    folder = tmp_path_factory.mktemp("store")
    if stores.engine == DUCKDB:
        yield made_once("browsed", make, folder)
    else:
        with stores.empty(folder) as url:
            make(url)
            yield url


@pytest.fixture(scope="session")
def pictured_store(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A week of the fleet that `trimtab demo` shows."""
    with stores.empty(tmp_path_factory.mktemp("pictured")) as url:
        fill(url, nodes=8, days=7)
        yield url


@pytest.fixture(scope="session")
def own_port() -> Iterator[int]:
    """The port of every server that one test has for itself: their pages are of one address."""
    with kept_port() as port:
        yield port


@pytest.fixture
def pictured_server(
    stores: Stores, pictured_store: str, own_port: int, tmp_path: Path
) -> Iterator[Server]:
    """A server on a copy of that week."""
    with (
        stores.copy_of(pictured_store, tmp_path) as url,
        running_server(url, tmp_path, port=own_port) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def server(
    stores: Stores,
    filled_store: str,
    tmp_path_factory: pytest.TempPathFactory,
    folder_ends: FolderEnds,
) -> Server:
    """One server for all tests that only look."""
    folder = tmp_path_factory.mktemp("looked-at")
    ends = folder_ends.of(Path(__file__).parent)
    url = ends.enter_context(stores.copy_of(filled_store, folder))
    return ends.enter_context(running_server(url, folder))


@pytest.fixture
def own_server(
    stores: Stores, filled_store: str, own_port: int, tmp_path: Path
) -> Iterator[Server]:
    """A server of its own for a test that decides."""
    with (
        stores.copy_of(filled_store, tmp_path) as url,
        running_server(url, tmp_path, port=own_port) as own,
    ):
        yield own


@pytest.fixture
def empty_store(stores: Stores, tmp_path: Path) -> Iterator[str]:
    """The address of a store that nobody has opened yet."""
    with stores.empty(tmp_path) as url:
        yield url


@pytest.fixture(scope="session")
def browser(folder_ends: FolderEnds) -> Browser:
    """Chromium of the system; its absence fails the test, since `make servers` installs it."""
    executable = shutil.which("chromium")
    assert executable, "chromium is not installed; run `make servers`"
    expect.set_options(timeout=PATIENCE)
    ends = folder_ends.of(Path(__file__).parent)
    playwright = ends.enter_context(sync_playwright())
    started = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_FLAGS))
    ends.callback(started.close)
    return started


@pytest.fixture(scope="session")
def tab(browser: Browser, folder_ends: FolderEnds) -> Visitor:
    """One tab: it compiles the scripts of the pages of one address once for all tests."""
    return folder_ends.of(Path(__file__).parent).enter_context(watched_tab(browser))


@pytest.fixture
def visitor(tab: Visitor) -> Iterator[Visitor]:
    """That tab, as new, which must neither ask another host nor complain."""
    tab.page.set_viewport_size(SIZE)
    yield tab
    said, asked = tab.errors[:], tab.hosts.copy()
    tab.forget()
    assert asked <= {"127.0.0.1"}
    assert said == []


@pytest.fixture(scope="session")
def small_page(
    tmp_path_factory: pytest.TempPathFactory, folder_ends: FolderEnds
) -> tuple[Path, int]:
    """A served page whose drawing can be held: its folder and port."""
    folder = tmp_path_factory.mktemp("small-page")
    return folder, folder_ends.of(Path(__file__).parent).enter_context(serving(folder))


@pytest.fixture
def bare_tab(small_page: tuple[Path, int]) -> Iterator[Tab]:
    """A tab on the small page, that has drawn it."""
    with open_tab(*small_page) as tab:
        yield tab
