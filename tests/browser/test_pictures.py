"""Takes docs/images anew, and sheets of every page to look at; for `make screenshots` only."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from beds.stated_time import ahead_of_the_machine, clock_ahead
from beds.stores import Stores
from browser.bed import Server, Visitor, running_server
from browser.inbox import answer, open_row
from browser.test_demo import Demo, running_demo
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from benchmarks.pages import stored
from dashboard.cli import main
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from data.settings.all_settings import Settings
from data.settings.store import StoreSettings
from data.store import open_store

pytestmark = pytest.mark.browser
IMAGES = Path(__file__).parents[2] / "docs" / "images"
VIEWS = {
    "overview": "",
    "forecasts": "?week-ahead=true",
    "findings": "findings",
    "plan": "findings?over-time=true",
    "jobs": "jobs",
    "job": "jobs?job={job}",
    "serving": "jobs?tab=serving",
    "fleet": "fleet",
    "facility": "fleet?tab=facility",
    "costs": "account",
    "energy": "account?tab=energy",
    "reports": "account?tab=reports",
    "new_job": "new_job",
    "health": "admin",
    "quality": "admin?tab=quality",
    "savings": "account?tab=savings",
    "audit": "admin?tab=audit",
    "settings": "admin?tab=settings",
}
"""What is on the sheets, with its address."""
PICTURED = {"overview": "", "plan": ".st-key-over-time"}
"""Of these, the ones that README and docs/ show, and the part of them; the demo gives two more."""
SHEETS = Path(__file__).parents[2] / "dist" / "pages"
"""A sheet of each page of each fleet: by width from left to right, light above dark; not kept."""
WIDTHS = (1440, 800, 390)
WIDTH = 1280
TALLEST = 1700
MAX_BYTES = 250_000


def job_of(url: str) -> str:
    """Return the name of a job in the middle of the plan, as an address has it."""
    with open_store(url, create=False) as store:
        plan = store.reader.latest_plan()
    assert plan is not None
    return quote(plan.jobs[len(plan.jobs) // 2].job_id)


def keep(picture: Image.Image, name: str) -> None:
    """Write a picture with a palette of its own, small enough for a repository.

    The default palette drops rare colours, such as those of badges (a channel off by up to 63 of
    255); with the widest coverage it is off by 6.
    """
    path = IMAGES / f"{name}.png"
    widest = Image.Quantize.MAXCOVERAGE
    coloured = picture.convert("RGB").quantize(256, method=widest, dither=Image.Dither.NONE)
    coloured.save(path, optimize=True)
    assert path.stat().st_size <= MAX_BYTES, f"{path} is too large: take less of the page"


def take(page: Page, name: str, folder: Path, part: str = "") -> None:
    """Take the page as high as what is on it, up to a limit, or a part of it."""
    main = page.get_by_test_id("stMain")
    needed = main.evaluate(
        "main => main.querySelector('[data-testid=stMainBlockContainer]').scrollHeight"
    )
    page.set_viewport_size({"width": WIDTH, "height": min(max(needed, 760), TALLEST)})
    Visitor(page).settle()
    raw = folder / f"{name}.png"
    if part:
        page.locator(part).screenshot(path=raw)
    else:
        page.screenshot(path=raw)
    picture = Image.open(raw)
    keep(picture.crop((0, 0, picture.width, min(picture.height, TALLEST))), name)


def test_the_views_that_are_shown(
    pictured_server: Server, visitor: Visitor, tmp_path: Path
) -> None:
    """Those of a fleet like the demo's that a page of the documentation shows, in light."""
    for name, part in PICTURED.items():
        visitor.page.set_viewport_size({"width": WIDTH, "height": 1000})
        visitor.open(f"{pictured_server.base}/{VIEWS[name]}")
        take(visitor.page, name, tmp_path, part)


def test_the_demo_and_its_ledger(visitor: Visitor, tmp_path: Path) -> None:
    """The preview of a change to the simulated cluster, and what it saved."""
    with running_demo(tmp_path, nodes=8, days=7) as demo:
        visitor.page.set_viewport_size({"width": WIDTH, "height": 1000})
        _apply_the_first(demo, visitor, lambda: take(visitor.page, "demo-change", tmp_path))
        visitor.go("Account", "Savings")
        measured = visitor.page.get_by_text(re.compile("1 of 1 applied change measured"))
        expect(measured).to_be_visible(timeout=240_000)
        take(visitor.page, "savings", tmp_path)


def _apply_the_first(demo: Demo, visitor: Visitor, previewed: Callable[[], None]) -> None:
    visitor.page.set_default_timeout(60_000)
    visitor.open(f"{demo.base}/findings")
    panel, _chosen = open_row(visitor, "Reclaim idle GPU")
    panel.get_by_role("button", name="Look at the target").click()
    expect(panel.get_by_text(re.compile("simulated cluster: ")).first).to_be_visible(timeout=60_000)
    previewed()
    panel.get_by_role("button", name="Approve and apply").click()
    answer(visitor, name="Robin")
    visitor.settle()


def real_pods(folder: Path) -> str:
    """The address of a recording of real pods, planned at its end; DATA says where they are."""
    url = f"duckdb:///{folder}/pods.duckdb"
    found = Path(os.environ["DATA"]) / "alibaba_genai_pods" / "pod_gpu_timeseries.parquet"
    given = ("import", str(found), "--map", str(IMAGES.parent / "examples/alibaba-genai.toml"))
    assert main(["--store", url, *given]) == 0
    with build_world(Settings(store=StoreSettings(url=url))).store as store:
        recording = store.reader.recording()
        assert recording is not None
        run_cycle(build_world(Settings(), store=store), now=recording.end)
    return url


@pytest.fixture(params=["demo", "pods", "10000-gpus"])
def fleet(
    request: pytest.FixtureRequest,
    stores: Stores,
    pictured_store: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[str, str]]:
    """The name of a fleet and the address of its store."""
    monkeypatch.delenv("TRIMTAB_SCREENSHOTS")  # no setting
    with ExitStack() as stack:
        if request.param == "demo":
            url = stack.enter_context(stores.copy_of(pictured_store, tmp_path))
        elif request.param == "pods":
            url = real_pods(tmp_path)
        else:  # benchmarks keep it too, up to the machine's time
            stack.enter_context(clock_ahead(-ahead_of_the_machine()))
            kept = Path(os.environ.get("STORES") or tmp_path)
            url = f"duckdb:///{stored(kept, 1250)}"
        yield request.param, url


def test_sheets_to_look_at(
    fleet: tuple[str, str], browser: Browser, own_port: int, tmp_path: Path
) -> None:
    """Every page at three widths, light and dark."""
    name, url = fleet
    folder = SHEETS / name
    folder.mkdir(parents=True, exist_ok=True)
    job = job_of(url)
    with running_server(url, tmp_path, port=own_port) as server:
        for view, path in VIEWS.items():
            address = f"{server.base}/{path.format(job=job)}"
            rows = [shots(browser, address, mode) for mode in ("light", "dark")]
            tiled(rows).save(folder / f"{view}.png")


def shots(browser: Browser, address: str, mode: Literal["light", "dark"]) -> list[Image.Image]:
    """Return a page in a colour scheme at each width, at half its size."""
    with browser.new_context(color_scheme=mode) as context:
        visitor = Visitor(context.new_page())
        visitor.page.set_viewport_size({"width": WIDTHS[0], "height": 1700})
        visitor.open(address)
        made = []
        for width in WIDTHS:
            visitor.resize(width)
            raw = Image.open(BytesIO(visitor.page.screenshot())).convert("RGB")
            made.append(raw.resize((raw.width // 2, raw.height // 2), Image.Resampling.LANCZOS))
        return made


def tiled(rows: Sequence[Sequence[Image.Image]]) -> Image.Image:
    """Return the pictures side by side, row below row."""
    size = max(sum(shot.width for shot in row) for row in rows), sum(row[0].height for row in rows)
    sheet, top = Image.new("RGB", size, "grey"), 0
    for row in rows:
        left = 0
        for shot in row:
            sheet.paste(shot, (left, top))
            left += shot.width
        top += row[0].height
    return sheet
