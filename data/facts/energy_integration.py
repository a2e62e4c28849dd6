"""Power and energy readings that the store's roll-up believes."""

MAX_GAP_SECONDS = 300.0
"""Between two readings further apart than this nothing is known (restarts, reloads)."""

CAP_FACTOR = 1.2
"""A counter that grows faster than this times the power limit has jumped and is not believed."""

SLACK_JOULES = 100.0
"""Counters advance in steps: so much above the cap is no jump."""
