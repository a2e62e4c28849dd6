"""Slurm as a source: jobs, nodes and allocations, by its commands or by slurmrestd."""
