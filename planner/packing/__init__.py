"""Runs of jobs on real nodes over time: placement, ejection, lower bounds."""
