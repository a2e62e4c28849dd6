"""`trimtab doctor`: what is missing for every source and target, and the fix."""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from dashboard.accounting.cost.prices import planning_prices
from dashboard.apply import build_appliers
from dashboard.apply.contract.applier import AccessCheckingApplier
from dashboard.apply.contract.multi_cluster import cluster_of
from dashboard.cli.terminal.context import open_store_or_holder, settings_of
from dashboard.cli.terminal.output import FINDINGS, print_rows
from dashboard.cycle.diagnosis import reads_engines, source_findings
from dashboard.cycle.grid_refresh import refresh_grid
from dashboard.cycle.make_problem import live_jobs
from dashboard.reports.week.editions import recipients
from dashboard.submission.targets.choose_target import target_name, target_of
from data.base.clock import utc_now
from data.base.counts import count_text
from data.base.errors import StoreError, TrimtabError
from data.base.extras import require_extra
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import CURRENCY
from data.catalogue.grid_forecast import current_outlook
from data.facts.cluster_names import named_in
from data.records.contradictions import FIX, contradictions_text
from data.settings.all_settings import Settings
from data.settings.load import files_read
from data.settings.sources import real_source_switches
from data.store.engine.disk_space import require_room
from forecasting.distributed.ray_driver import absence_reason
from planner.jobs.scheduler_shares import contradictions

_NAMED_SERVICES = 3

_RAY_SECONDS = 2.0


def _check_store(settings: Settings) -> tuple[str, str]:
    with open_store_or_holder(settings.store.url) as store:
        free = store.reader.free_mib()
        require_room(free)
        if store.losses:
            accept = "`trimtab store check --accept` ends this warning."
            return "missing", ". ".join((*store.losses, accept))
        room = "" if free is None else f", {free:,.0f} MiB free"
        return "ok", f"{store.reader.counts().get('samples', 0)} samples{room}"


def _check_shares(settings: Settings) -> tuple[str, str]:
    with open_store_or_holder(settings.store.url) as store:
        quotas, jobs = store.reader.quotas(), store.reader.jobs_lately()
    newest = max((job.last_seen_at for job in jobs), default=utc_now())
    otherwise = tuple(contradictions(settings.tenants, quotas, live_jobs(jobs, newest)))
    if otherwise:
        return "missing", f"tenants.shares: {'; '.join(otherwise)}."
    return "ok", "no scheduler says otherwise than tenants.shares"


def _check_readings(settings: Settings) -> tuple[str, str]:
    """Tell of which boards a counter shows what their other readings rule out."""
    try:
        with open_store_or_holder(settings.store.url) as store:
            latest = store.reader.latest_sample_at()
            counters = store.reader.contradicted_counters(end=latest or utc_now())
    except StoreError:  # the row of the store says why
        latest, counters = None, ()
    if latest is None:
        return "warning", "none is kept yet, so none was held against others: run `trimtab cycle`"
    if not counters:
        return "ok", "no counter is contradicted by the other readings of its GPU"
    return "missing", f"contradicted in the last day: {contradictions_text(counters)}. {FIX}"


def _check_region(settings: Settings) -> tuple[str, str]:
    grid = load_carbon_table().get(settings.energy.region)
    return "ok", f"{grid.gco2e_per_kwh:g} gCO2e/kWh, {grid.year}, {grid.source}"


def _check_grid_forecast(settings: Settings) -> tuple[str, str]:
    failed = refresh_grid(settings, utc_now())
    outlook = current_outlook(settings, utc_now())
    if failed:
        return "missing", "; ".join((*failed, outlook.describe()))
    return ("ok" if outlook.forecast else "missing"), outlook.describe()


def _check_changes(settings: Settings) -> tuple[str, str]:
    folder = Path(settings.apply.directory)
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if os.access(nearest, os.W_OK):
        return "ok", f"change files go to {folder}"
    return "missing", f"{nearest} cannot be written. Set apply.directory to another folder."


def _check_submission(settings: Settings) -> tuple[str, str]:
    name = target_name(settings)
    reason = target_of(settings, name).why_not()
    return ("missing", reason) if reason else ("ok", f"jobs go to {name}")


def _is_told(settings: Settings) -> bool:
    """Return whether messages or reports go to anybody."""
    notify, report = settings.notify, settings.report
    return bool(notify.mail_to or notify.webhook_url or recipients(report))


def _check_links(settings: Settings) -> tuple[str, str]:
    if public := settings.access.public_url:
        return "ok", f"messages link to {public}"
    return (
        "missing",
        "messages hold no link. Set access.public_url to the address that browsers use.",
    )


def _check_prices(settings: Settings) -> tuple[str, str]:
    """Tell that sums in the currency of the settings are made of prices in another."""
    return "warning", f"money rests on {planning_prices(settings.energy.currency)}"


def _check_services(settings: Settings) -> tuple[str, str]:
    """Return the readings of inference engines, and the services without a number."""
    with open_store_or_holder(settings.store.url) as store:
        outlooks = store.reader.serving_outlook()
    unknown = [outlook for outlook in outlooks if not outlook.required_replicas]
    replicas = sum(outlook.replicas for outlook in outlooks)
    read = f"the latest cycle read {count_text(len(outlooks), 'service')} on {replicas} replicas"
    if not unknown:
        return "ok", f"{read}, each with a number" if outlooks else f"{read}: no engine is scraped"
    texts = [f"{outlook.service}: {outlook.reason}" for outlook in unknown[:_NAMED_SERVICES]]
    more = len(unknown) - len(texts)
    rest = f"; {more} more: `trimtab serving services`" if more else ""
    return "warning", f"{read}, {len(unknown)} without a number: {'; '.join(texts)}{rest}"


def _check_model(_settings: Settings) -> tuple[str, str]:
    require_extra("prophet", "planning.model is prophet")
    return "ok", "planning.model is prophet, and its library is installed"


def _check_ray(settings: Settings) -> tuple[str, str]:
    address = settings.ray.address
    require_extra("ray", f"ray.address is {address!r}")
    why = absence_reason(address, _RAY_SECONDS)
    words = f"no head answers at {address} ({why}): cycles compute here, and take longer"
    has_host = address.removeprefix("ray://").rpartition(":")[0] or address == "local"
    unasked = "each cycle looks for a head, and computes here else"
    detail = address if has_host else f"{address}: {unasked}"
    return ("warning", words) if why else ("ok", detail)


def _applier_rows(settings: Settings) -> Iterator[dict[str, object]]:
    """Yield a row for each target that changes go to."""
    for applier in build_appliers(settings):
        if not isinstance(applier, AccessCheckingApplier):
            continue
        try:
            usable, detail = applier.access()
        except TrimtabError as error:
            usable, detail = False, str(error)
        state = "ok" if usable else "missing"
        part = f"changes of {named_in(applier.name, cluster_of(applier))}"
        yield {"part": part, "state": state, "detail": detail}


def doctor(options: argparse.Namespace) -> int:
    """Check the store, every source and the change folder; 3 when something is missing."""
    loaded = settings_of(options)
    settings = loaded.settings
    checks: dict[str, Callable[[Settings], tuple[str, str]]] = {
        "settings": lambda _settings: ("ok", files_read(loaded)),
        "store": _check_store,
        "readings": _check_readings,
        "grid carbon": _check_region,
        "change files": _check_changes,
    }
    of_its_own = settings.statement.prices or settings.energy.currency.upper() == CURRENCY
    checks |= {
        name: check
        for name, condition, check in (
            ("prices", not of_its_own, _check_prices),
            ("grid forecast", settings.energy.forecast_file or settings.grid.in_use,
             _check_grid_forecast),
            ("inference services", reads_engines(settings), _check_services),
            ("tenants", settings.tenants.shares, _check_shares),
            ("forecasting model", settings.planning.model == "prophet", _check_model),
            ("Ray", settings.ray.address, _check_ray),
            ("submission", settings.submit.enabled, _check_submission),
            ("links", _is_told(settings), _check_links),
        )
        if condition
    }  # fmt: skip
    rows: list[dict[str, object]] = []
    for name, check in checks.items():
        try:
            state, detail = check(settings)
        except TrimtabError as error:
            state, detail = "missing", str(error)
        rows.append({"part": name, "state": state, "detail": detail})
    rows.extend(_applier_rows(settings))
    rows.extend(_source_rows(settings))
    print_rows(rows, options.format, columns=("part", "state", "detail"), empty="")
    return FINDINGS if any(row["state"] not in ("ok", "warning") for row in rows) else 0


def _source_rows(settings: Settings) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"part": f"{source}: {what}", "state": state, "detail": detail}
        for source, (what, state, detail) in source_findings(settings, utc_now())
    ]
    if not rows and not settings.sources_in_use() and not settings.clusters.others:
        hint = (
            f"No source is configured. Set {' or '.join(real_source_switches().values())}, "
            "or import a trace."
        )
        return [{"part": "sources", "state": "missing", "detail": hint}]
    return rows
