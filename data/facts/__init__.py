"""What sources report: jobs, fleet, quotas, waits, the columns of frames."""
