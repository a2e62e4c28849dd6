"""Savings ledger, by day, idle bridge."""
