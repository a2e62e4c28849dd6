"""Client, session, range splitting, metrics, what is missing."""
