"""Telling people of approvals, outcomes and rollbacks. Recipients come from the settings only."""
