"""The Git applier: a change as a pull request against the repository that owns the workload."""
