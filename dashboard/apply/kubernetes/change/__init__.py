"""Observe, edits, steps, dry run, send, verify, MIG layouts."""
