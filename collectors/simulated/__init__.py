"""The simulated fleet and cluster."""
