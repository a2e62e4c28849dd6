"""The forecast in use: members, weights and bands, compiled."""
