"""Changes to Slurm jobs and nodes: looked at, stepped through, sent once, read back."""
