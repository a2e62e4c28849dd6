"""Settings of the store: where it is, and how much room it leaves."""

from dataclasses import dataclass

from data.setting_fields import Section, documented, documented_path
from data.state_folder import USUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings(Section, name="store"):
    """Where facts, plans and decisions are kept."""

    url: str = documented_path(
        f"duckdb:///{USUAL}/trimtab.duckdb", "duckdb:///PATH or postgresql+psycopg://USER@HOST/NAME"
    )
    min_free_mib: float = documented(
        500.0,
        "free space of a DuckDB file's disk below which nothing is collected, MiB",
        minimum=0,
        maximum=1e15,
    )
