"""Programs and slurmrestd, requests, responses, job state."""
