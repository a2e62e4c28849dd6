"""Numbered SQL scripts, each run once and in order by `data.store.engine.migrate`."""
