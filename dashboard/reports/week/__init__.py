"""The facts of a week, editions, dispatch."""
