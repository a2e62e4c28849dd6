"""Forecasts, plans, prepared answers and how long they stay."""
