"""Whoever changes the record is found out: any value, any row, any order, and a cut end."""

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from beds.apply_bench import JOB, Bench, fill
from beds.file_cluster import FileCluster
from reliability import Measured
from tampering import tamper

from data.store import Store, open_store
from data.store.engine import tables
from data.store.record.record_reader import record_problems

RECORD = (tables.audit, *tables.COVERED)
MUTATIONS = 1200


@pytest.fixture
def record(store_url: str, tmp_path: Path) -> Iterator[Store]:
    """The record of one recommendation that was applied and rolled back."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    with open_store(store_url) as store:
        fill(store)
        bench = Bench(store, cluster, tmp_path)
        bench.approve()
        bench.ask()
        bench.work(visits=3)
        bench.roll_back()
        bench.work(visits=5)
        store.append_audit(at=bench.clock(), actor="A", event="stopped", digest="", detail="")
        assert bench.state == "rolled-back"
        yield store


Copy = dict[str, list[dict[str, Any]]]


def copied(store: Store) -> tuple[Copy, dict[str, str]]:
    """The rows of the record by table, and the recommendations, as the store holds them."""
    with store.reader._engine.connect() as connection:
        rows = {
            table.name: [
                dict(row._mapping)
                for row in connection.execute(sa.select(table).order_by(table.c.sequence))
            ]
            for table in RECORD
        }
        kept = connection.execute(sa.select(tables.recommendations)).all()
    return rows, {row.digest: row.record for row in kept}


def problems(rows: Copy, recommendations: dict[str, str], head: str = "") -> tuple[str, ...]:
    """What is found in a copy, by the same function that the command uses."""
    ordered = {name: sorted(table, key=lambda row: row["sequence"]) for name, table in rows.items()}
    audit = ordered.pop("audit")
    return record_problems(audit, ordered, recommendations, head=head)


def changed(value: Any, chance: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, str):
        place = chance.randrange(len(value) + 1)
        other = value[:place] + chance.choice("x0 '\u200b") + value[place + chance.randrange(2) :]
        return other if other != value else value + "x"
    if isinstance(value, int):
        return value + chance.choice([-1, 1, 1000])
    return value + timedelta(microseconds=chance.choice([-1, 1, 3_600_000_000]))


def mutate(rows: Copy, chance: random.Random) -> str:
    """Edit, remove, double or swap rows of the record; say what was done."""
    name = chance.choice([table for table, held in rows.items() if held])
    table = rows[name]
    place = chance.randrange(len(table))
    deed = chance.choice(["edit"] * 6 + ["remove", "double", "swap"])
    if deed == "edit":
        column = chance.choice(list(table[place]))
        before = table[place][column]
        table[place] = table[place] | {column: changed(before, chance)}
        return f"{name}[{place}].{column}: {before!r} to {table[place][column]!r}"
    if deed == "double":
        table.append(table[place] | {"sequence": len(table) + 1})
    elif deed == "remove" or len(table) == 1:
        del table[place]
    else:
        other = (place + chance.randrange(1, len(table))) % len(table)
        one, two = table[place]["sequence"], table[other]["sequence"]
        table[place] = table[place] | {"sequence": two}
        table[other] = table[other] | {"sequence": one}
    return f"{deed} {name}[{place}]"


def test_every_mutation_of_the_record_is_detected(record: Store, measured: Measured) -> None:
    """1,200 random edits, removals, copies and swaps of audit, decisions, commands and journal."""
    rows, recommendations = copied(record)
    head = rows["audit"][-1]["entry_hash"]
    assert problems(rows, recommendations, head) == ()
    chance = random.Random(20261121)  # noqa: S311 - a repeatable test, no secret
    missed = []
    for _number in range(MUTATIONS):
        mutated = {name: list(table) for name, table in rows.items()}
        deed = mutate(mutated, chance)
        if not problems(mutated, recommendations, head):
            missed.append(deed)
    assert missed == []
    measured(f"{MUTATIONS:,} of {MUTATIONS:,} mutated records found")


def test_a_cut_end_is_detected_by_the_noted_head(record: Store) -> None:
    """Entries and their rows taken off the end leave a whole chain, and another head."""
    rows, recommendations = copied(record)
    head = rows["audit"][-1]["entry_hash"]
    for _cut in range(5):
        last = rows["audit"].pop()
        name, _, sequence = last["covers"].partition(":")
        if name:
            rows[name] = [row for row in rows[name] if row["sequence"] != int(sequence)]
        assert problems(rows, recommendations) == ()
        assert "cut off" in problems(rows, recommendations, head)[0]


def test_an_edited_recommendation_is_detected(record: Store) -> None:
    """What was approved is what is kept, to the letter."""
    rows, recommendations = copied(record)
    for digest, text in recommendations.items():
        assert problems(rows, {**recommendations, digest: text.replace("4", "8", 1)})
        assert problems(
            rows,
            {
                key: recommendation
                for key, recommendation in recommendations.items()
                if key != digest
            },
        )


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE journal SET detail = 'x' WHERE sequence = 2",
        'UPDATE commands SET person = \'{"name":"Kim"}\' WHERE sequence = 1',
        "UPDATE decisions SET change_digest = 'f' WHERE sequence = 1",
        "DELETE FROM journal WHERE sequence = 3",
        "UPDATE recommendations SET record = replace(record, 'ranker', 'other')",
    ],
)
def test_tampering_with_the_rows_of_a_real_store_is_detected(record: Store, tampering: str) -> None:
    """The rows that the chain covers are as protected as the chain."""
    tamper(record, tampering)
    assert record.reader.verify_audit()
