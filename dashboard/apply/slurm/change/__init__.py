"""Observe, moves, steps, send, verify, nodes, capacity."""
