"""PostgreSQL roles: each can do its part of a change, and the server refuses it the others."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from beds.postgres import PostgresBed
from factories import NOW, make_collected, make_plan, make_recommendation
from sqlalchemy.engine import make_url

from data.base.errors import StoreError
from data.records.commands import CommandKind, Person
from data.records.recommendations import Decision
from data.settings.all_settings import RetentionSettings
from data.store import Store, open_store
from data.store.record.grants import NOT_WRITTEN, WRITES, grants_sql

pytestmark = pytest.mark.postgres
DIGEST = make_recommendation().digest


def keep_advice(store: Store) -> None:
    """Keep a cycle with one recommendation."""
    store.keep_cycle(
        cycle_id="c1",
        started_at=NOW,
        finished_at=NOW,
        forecasts=(),
        plan=make_plan(),
        recommendations=(make_recommendation(),),
    )


@pytest.fixture(scope="module")
def roles(postgres: PostgresBed) -> Iterator[dict[str, str]]:
    """The address of one store for each role: what is refused changes nothing in it."""
    with postgres.database(template="store_template") as url:
        name = str(make_url(url).database)
        with postgres.connection(name) as owner:
            owner.execute(grants_sql().encode())
            owner.execute(grants_sql().encode())  # may be run again
        yield {
            role: postgres.url(name, role=f"trimtab_{role}") for role in ("web", "cycle", "apply")
        }


def test_every_table_says_who_may_write_it(shared: Store) -> None:
    """A new table without a line in the grants fails here."""
    named = {table for names in WRITES.values() for table in names} | NOT_WRITTEN
    assert set(shared.reader.counts()) | {"schema_version", "dirty_hours", "retained"} == named


def test_each_role_can_do_its_part(roles: dict[str, str]) -> None:
    """A change from facts to its end, by three roles none of which could do it alone."""
    with (
        open_store(roles["web"]) as web,
        open_store(roles["cycle"]) as cycle,
        open_store(roles["apply"]) as applier,
    ):
        cycle.keep(make_collected())
        keep_advice(cycle)
        web.append_decision(digest=DIGEST, decision=Decision.APPROVED, by="A", at=NOW, comment="")
        web.commands.ask(
            kind=CommandKind.APPLY, digest=DIGEST, subject=DIGEST, target="kubernetes",
            person=Person(name="A"), at=NOW,
        )  # fmt: skip
        hour = timedelta(hours=1)
        lease = applier.commands.take(owner="w", now=NOW, lasting=hour)
        assert lease is not None
        for event in ("prepared", "applied"):
            applier.commands.write(
                lease, event, at=NOW, lasting=hour, digest=DIGEST, actor="trimtab"
            )
        applier.commands.finish(lease)
        cycle.forget(RetentionSettings(raw_days=1), NOW + timedelta(days=9))
        assert cycle.outbox.fill(lambda _entry: (), now=NOW) == 0
        assert web.reader.recommendation(DIGEST, now=NOW).state == "applied"
        assert web.reader.verify_audit() == ()


REFUSED = {
    "web writes a plan": ("web", "INSERT INTO plans VALUES ('p', 'c', '{}')"),
    "web writes advice": ("web", "INSERT INTO recommendations VALUES ('d', 'c', 'p', '{}')"),
    "web changes facts": ("web", "DELETE FROM samples"),
    "web marks a command applied": (
        "web",
        "INSERT INTO journal VALUES (1, 1, 'c', 'd', 'applied', -1, now(), 1, '', '')",
    ),
    "web takes a lease": ("web", "UPDATE leases SET owner = 'web', finished = true"),
    "cycle marks a command applied": (
        "cycle",
        "INSERT INTO journal VALUES (1, 1, 'c', 'd', 'applied', -1, now(), 1, '', '')",
    ),
    "cycle approves": (
        "cycle",
        "INSERT INTO decisions VALUES (1, 'd', 'approved', 'x', now(), '')",
    ),
    "cycle asks to apply": (
        "cycle",
        "INSERT INTO commands VALUES (1, 1, 'c', 'apply', 'd', 'd', 't', '', '{}', now())",
    ),
    "applier approves": (
        "apply",
        "INSERT INTO decisions VALUES (1, 'd', 'approved', 'x', now(), '')",
    ),
    "applier writes a plan": ("apply", "INSERT INTO plans VALUES ('p', 'c', '{}')"),
    "web drops history": ("web", "SELECT drop_partitions('samples', now())"),
    **{
        f"{role} {word}s the record": (role, statement)
        for role in ("web", "cycle", "apply")
        for word, statement in (
            ("edit", "UPDATE audit SET actor = 'B'"),
            ("cut", "DELETE FROM audit"),
            ("empty", "TRUNCATE audit"),
            ("disable", "ALTER TABLE audit DISABLE TRIGGER ALL"),
            ("drop", "DROP TABLE audit"),
        )
    },
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_a_role_is_refused_what_is_not_its_part(roles: dict[str, str], attempt: str) -> None:
    """By the server itself, whatever the program thinks it may do."""
    role, statement = REFUSED[attempt]
    with (
        open_store(roles[role]) as store,
        pytest.raises(StoreError, match=f"trimtab_{role}"),
        store._engine.begin() as connection,
    ):
        connection.exec_driver_sql(statement)


def test_a_role_cannot_migrate(postgres: PostgresBed, roles: dict[str, str]) -> None:
    """It says whose work that is."""
    assert roles
    with postgres.database() as url:
        role = url.replace("trimtab@", "trimtab_web@", 1)
        with pytest.raises(StoreError, match=r"trimtab store migrate"):
            open_store(role)
        with pytest.raises(StoreError, match="there is no store"):
            open_store(role, create=False)
