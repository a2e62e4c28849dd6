"""The slot problem as a value, its checks, cost, one job's DP."""
