"""The applier of the simulated cluster."""
