"""Who waits for GPUs, on the page Jobs."""

from pathlib import Path

import pytest
from beds.stores import Stores
from browser.bed import Visitor, running_server
from factories import make_collected, make_quota, make_samples
from playwright.sync_api import expect
from waiting_jobs import waiting_jobs

from data.base.clock import utc_now
from data.store import open_store

pytestmark = pytest.mark.browser


def test_the_queue_is_a_choice_of_the_page_jobs(
    stores: Stores, visitor: Visitor, tmp_path: Path
) -> None:
    """The answer counts who waits; a search and an address narrow it, and one press is the job."""
    with stores.empty(tmp_path) as url:
        now = utc_now()
        with open_store(url) as store:
            quotas = (make_quota("vision-team", observed_at=now),)
            made = make_collected(make_samples(end=now), jobs=waiting_jobs(now), quotas=quotas)
            store.keep(made)
        with running_server(url, tmp_path) as server:
            page = visitor.page
            visitor.open(f"{server.base}/jobs?show=waiting")
            expect(page.locator("h1")).to_contain_text("3 jobs wait for 7 GPUs, the longest")
            expect(page.get_by_text("Ahead are jobs that were submitted earlier")).to_be_visible()
            expect(page.get_by_role("heading", name="Quotas")).to_be_visible()
            expect(page.get_by_text("As schedulers enforce them.")).to_be_visible()
            visitor.open(f"{server.base}/jobs?show=waiting&q=slurm:4")
            expect(page.locator("h1")).to_contain_text("1 job waits for 2 GPUs")
            visitor.open(f"{server.base}/jobs?show=waiting&q=nobody")
            expect(page.locator("h1")).to_contain_text("No job waits for GPUs.")
