"""Forecasts, plans and how long they stay."""
