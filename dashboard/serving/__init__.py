"""Replicas needed, cheaper fit, token cost."""
