"""Capacity, heat, hot spots."""
