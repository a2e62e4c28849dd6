"""States, checks, service, findings."""
