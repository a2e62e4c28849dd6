"""Cycle, serve, demo, doctor, import, store."""
