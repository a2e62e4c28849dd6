"""Proposal, sending, following."""
