"""Costs, energy, savings, reports."""
