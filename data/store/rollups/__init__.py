"""Samples to five minutes and hours."""
