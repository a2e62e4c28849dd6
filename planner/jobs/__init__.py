"""Demand, end, elasticity, history, power curve of a job."""
