"""Authentication, pagination, problems, rate limits, ETags."""
