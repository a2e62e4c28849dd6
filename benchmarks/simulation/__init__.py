"""Scheduling policies replayed: applications, jobs, published peers, the rounds between."""
