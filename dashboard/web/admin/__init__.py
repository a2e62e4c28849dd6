"""Audit, health, settings."""
