"""Keeps batches in a store of FOLDER that may grow by KIB, then with room; tells what it saw.

A process of its own: the limit is the process's, and whatever else writes in it would meet it too.
"""

import json
import resource
import sys
from datetime import timedelta
from pathlib import Path

from factories import NOW, make_collected, make_samples

from data.base.errors import StoreError
from data.store import Store, open_store

_MOST = 100


def keep(store: Store, hour: int) -> str:
    """Keep the ten hours of eight boards that end at an hour; give why that was refused."""
    samples = make_samples(gpus=8, minutes=600, end=NOW + timedelta(hours=hour))
    try:
        store.keep(make_collected(samples, batch_id=str(hour)))
    except StoreError as error:
        return str(error)
    return ""


def count(store: Store) -> int:
    """The batches in the store."""
    return int(store.reader.counts()["batches"])


if __name__ == "__main__":
    folder, left_kib = Path(sys.argv[1]), int(sys.argv[2])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    url = f"duckdb:///{folder}/t.duckdb"
    with open_store(url) as store:
        assert keep(store, 0) == ""
        size = max(file.stat().st_size for file in folder.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1024 * left_kib, unlimited[1]))
        kept = next(number for number in range(1, _MOST) if keep(store, number))
        counted, refusal = count(store), keep(store, kept)
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert keep(store, 2 * _MOST) == ""
        after = count(store)
    with open_store(url) as again:
        told = {"kept": kept, "counted": counted, "refusal": refusal, "after": after}
        sys.stdout.write(json.dumps(told | {"reopened": count(again)}))
