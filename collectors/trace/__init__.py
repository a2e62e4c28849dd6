"""Parquet and CSV through a column map."""
