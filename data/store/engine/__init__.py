"""DuckDB and PostgreSQL, dialects, bulk frames, tables, migrations, locks, disk space."""
