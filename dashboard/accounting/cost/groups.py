"""By what rows of the statement are told apart; nothing heavy is imported."""

OF_BOARDS = ("board", "cluster")
"""What is not told apart by who held the boards, nor one beside the other."""
GROUPS = ("tenant", "application", "owner", "job", "outcome", "model", "state", *OF_BOARDS)
"""Alone or together, but for `OF_BOARDS`."""
