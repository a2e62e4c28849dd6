"""Shares of boards, and what jobs that are not planned need."""
