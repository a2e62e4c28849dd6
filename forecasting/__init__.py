"""Quantile forecasts of each job's demand, memory and power. Pure, no I/O."""
