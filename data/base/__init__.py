"""Errors, clock, units, text, small files, compiled kernels: what everything may import."""
