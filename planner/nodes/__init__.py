"""Plans on nodes: where every job is over time, which nodes are on, and what that costs."""
