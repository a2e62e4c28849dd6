"""States, checks, service, findings, dismissals."""
