"""Many people of two tenants at the pages of one `trimtab serve`.

`python -m benchmarks.load [--full] [--people 50] [--stores DIR]`: 1,000 GPUs with 30 days in the
store, with --full 10,000. Each person is a thread that opens one view after another, each in a new
session over HTTP and websocket. Who reads pauses 30 s in the mean between two views; the same
people without any pause show what the server can do at most. Half of them sign in as one owner,
half as another, by the header of a proxy; an owner sees the recommendations for their own jobs, so
one that holds a job of the other is cross-talk. Nothing is collected meanwhile. `--siege`: only
what one server bears at once (`_siege.py`); `--idle`: only what one takes of which nobody asks
anything (`_idle.py`). Each takes the place of its section in the results.
"""

import argparse
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from benchmarks._idle import section as idle_section
from benchmarks._page_client import Answer, open_page
from benchmarks._siege import section as siege_section
from benchmarks.pages import p95, served, stored
from data.base.clock import utc_now
from data.records.recommendations import Recommendation
from data.store import Store, open_store
from data.store.engine.bulk import insert_new_rows
from data.store.engine.record_json import to_json

RESULTS = Path(__file__).parent / "results" / "load.md"
TARGET_SECONDS = 3.0
PAUSE_SECONDS = 30.0
VIEWS = ("findings", "overview", "fleet", "jobs", "plan", "savings", "energy", "health")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One view that one person opened."""

    person: str
    view: str
    answer: Answer


def owners_sign_in(tenants: Sequence[str]) -> dict[str, str]:
    """Return the settings under which these people sign in by a proxy and own jobs."""
    return {
        "TRIMTAB_ACCESS_MODE": "proxy",
        "TRIMTAB_ACCESS_PROXY_ADDRESSES": "127.0.0.1",
        "TRIMTAB_ACCESS_DEFAULT_ROLE": "none",
        "TRIMTAB_ACCESS_OWNERS": ",".join(tenants),
    }


def people_at_once(
    base: str,
    jobs: Mapping[str, str],
    *,
    people: int,
    opens: int,
    views: Sequence[str] = VIEWS,
    pause: float = 0.0,
) -> list[Visit]:
    """Let so many people open so many views each, with a mean pause of so many s before each.

    `jobs` gives for each tenant the name of a job that only they may see recommended.
    """
    tenants = sorted(jobs)
    visits: list[Visit] = []
    begin = threading.Barrier(people)

    def visit(number: int) -> None:
        person = tenants[number % len(tenants)]
        chance = np.random.default_rng(number)
        begin.wait()
        for turn in range(opens):
            time.sleep(chance.uniform(0, 2 * pause))
            view = views[(number // len(tenants) + turn) % len(views)]
            path = "" if view == "overview" else view
            answer = open_page(base, path, person=person, names=jobs.values())
            visits.append(Visit(person=person, view=view, answer=answer))

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(people)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return visits


def cross_talk(visits: Sequence[Visit], jobs: Mapping[str, str]) -> list[Visit]:
    """Return the visits to recommendations that showed another's job, or not one's own."""
    return [
        visit
        for visit in visits
        if visit.view == "findings" and visit.answer.said != {jobs[visit.person]}
    ]


def give_tenants(store: Store) -> dict[str, str]:
    """Write a recommendation for a job of each of two owners; give the job by owner."""
    now = utc_now()
    pattern = store.reader.recommendations(now=now)[0].recommendation
    cycle = store.reader.last_cycle()
    if cycle is None:
        raise RuntimeError("the store holds no cycle")
    jobs: dict[str, str] = {}
    rows = []
    for job in store.reader.jobs():
        user = job.owner or (job.scheduler.user if job.scheduler else "")
        if user and user not in jobs and len(jobs) < 2 and job.namespace != pattern.namespace:
            made: Recommendation = replace(
                pattern,
                job_id=job.job_id,
                job_name=job.name,
                namespace=job.namespace,
                created_at=now,
                expires_at=now + timedelta(days=1),
            )
            jobs[user] = job.job_id
            rows.append((made.digest, cycle.cycle_id, made.plan_id, to_json(made)))
    frame = pd.DataFrame(rows, columns=["digest", "cycle_id", "plan_id", "record"])
    with store._transaction() as connection:  # noqa: SLF001 - written straight, as the fleet is
        insert_new_rows(connection, "recommendations", frame, key=("digest",))
    return jobs


def table(visits: Sequence[Visit]) -> list[str]:
    """Return the lines of the table: a view each, and all of them."""
    by_view: dict[str, list[float]] = defaultdict(list)
    for entry in visits:
        by_view[entry.view].append(entry.answer.seconds)
    by_view["all"] = [visit.answer.seconds for visit in visits]
    return [
        "| view | answers | p50, s | p95, s | longest, s |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {view} | {len(seconds)} | {statistics.median(seconds):.2f} | {p95(seconds):.2f} "
            f"| {max(seconds):.2f} |"
            for view, seconds in by_view.items()
        ),
    ]


def run(folder: Path, nodes: int, people: int, opens: int) -> list[str]:
    """Return the lines for a fleet of that many nodes."""
    path = stored(folder, nodes)
    with open_store(f"duckdb:///{path}") as store:
        jobs = give_tenants(store)
    with (
        TemporaryDirectory() as place,
        served(path, Path(place), owners_sign_in(sorted(jobs))) as server,
    ):
        people_at_once(server.base, jobs, people=2, opens=len(VIEWS))
        found = [f"## {8 * nodes:,} GPUs, {people} people of {len(jobs)} tenants", ""]
        for pause in (PAUSE_SECONDS, 0.0):
            spent, started = server.cpu_seconds(), time.perf_counter()
            visits = people_at_once(server.base, jobs, people=people, opens=opens, pause=pause)
            spent, took = server.cpu_seconds() - spent, time.perf_counter() - started
            found += section(visits, jobs, pause=pause, spent=spent, took=took)
    return found


def section(
    visits: Sequence[Visit], jobs: Mapping[str, str], *, pause: float, spent: float, took: float
) -> list[str]:
    """Return the lines of one way of visiting, that took so long and so much CPU of the server."""
    errors = [text for visit in visits for text in visit.answer.errors]
    if errors:
        raise RuntimeError(f"{len(errors)} pages failed: {errors[0]}")
    late = p95([visit.answer.seconds for visit in visits])
    wrong = cross_talk(visits, jobs)
    return [
        f"### {pause:g} s between two views in the mean" if pause else "### without any pause",
        "",
        (
            f"{len(visits)} answers in {took:.0f} s, {len(visits) / took:.1f} a second; "
            f"{spent / len(visits):.2f} s of the server's CPU each. "
            f"p95 below {TARGET_SECONDS:g} s: {'met' if late < TARGET_SECONDS else 'missed'} "
            f"({late:.2f} s). Cross-talk: {len(wrong)} of "
            f"{sum(visit.view == 'recommendations' for visit in visits)} recommendation pages."
        ),
        "",
        *table(visits),
        "",
    ]


def put(section: str) -> None:
    """Print a section, and write it into the results in the place of that of the same title."""
    print(section)
    parts = RESULTS.read_text(encoding="utf-8").rstrip().split("\n\n## ")
    title, text = section.partition("\n")[0].removeprefix("## "), section.removeprefix("## ")
    others = [part for part in parts if part.partition("\n")[0] != title]
    RESULTS.write_text("\n\n## ".join((*others, text)) + "\n", encoding="utf-8")


def main() -> None:
    """Print the tables and write them to benchmarks/results/load.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="10,000 GPUs as well")
    parser.add_argument("--data", default="../shared/data", help="not used: the fleet is made")
    parser.add_argument("--stores", type=Path, help="folder that keeps the stores made")
    parser.add_argument("--people", type=int, default=50, help="people at once")
    parser.add_argument("--opens", type=int, default=2, help="views that each of them opens")
    parser.add_argument("--siege", action="store_true", help="only everything at once")
    parser.add_argument("--idle", action="store_true", help="only a server that nobody asks")
    options = parser.parse_args()
    if options.siege or options.idle:
        with TemporaryDirectory() as temporary:
            folder = options.stores or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            lines = idle_section() if options.idle else siege_section(stored(folder, 125))
        put("\n".join(lines).rstrip())
        return
    lines = [
        "# Load",
        "",
        (
            "`python -m benchmarks.load`. Time of an answer: a new session over HTTP and websocket "
            "until the page's script has run. Clients and server share the machine."
        ),
        "",
    ]
    with TemporaryDirectory() as temporary:
        folder = options.stores or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for nodes in (125, 1250) if options.full else (125,):
            lines += run(folder, nodes, options.people, options.opens)
    text = "\n".join(lines)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
