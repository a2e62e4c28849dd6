"""Configurations, transitions, energy, tariffs, time shift, cost of a slot."""
