"""By what rows of the statement are told apart; nothing heavy is imported."""

BOARD_GROUPS = ("board", "cluster")
"""What is not told apart by who held the boards, nor one beside the other."""
GROUPS = ("tenant", "application", "owner", "job", "outcome", "model", "state", *BOARD_GROUPS)
"""Alone or together, but for `BOARD_GROUPS`."""
