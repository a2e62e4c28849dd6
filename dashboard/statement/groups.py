"""By what rows of the statement are told apart; nothing heavy is imported."""

GROUPS = ("tenant", "application", "owner", "job", "outcome", "model", "state", "board")
"""Alone or together; boards are not told apart by who held them."""
