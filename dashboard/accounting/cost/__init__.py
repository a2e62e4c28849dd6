"""Charges, prices, budgets, FOCUS, applications."""
