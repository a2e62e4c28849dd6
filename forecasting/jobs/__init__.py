"""What to forecast of each job, its path, the pool, surprises."""
