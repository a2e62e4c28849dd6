"""Forecasts of each job: the tasks, the path, the pool, surprises."""
