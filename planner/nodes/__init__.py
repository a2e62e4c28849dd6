"""Plans on nodes: the nodes of every job over time, the running nodes, and their cost."""
