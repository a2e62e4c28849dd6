"""Kubernetes and Slurm as targets."""
