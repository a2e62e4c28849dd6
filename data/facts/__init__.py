"""Reports of sources: jobs, fleet, quotas, waits, the columns of frames."""
