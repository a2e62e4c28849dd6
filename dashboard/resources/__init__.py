"""Rows of every list, alerts, the table of resources."""
