"""Rules that set a job's limit from its past: the peers' as published, and our own."""
