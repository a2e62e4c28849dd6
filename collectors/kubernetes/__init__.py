"""Kubernetes as a source: workloads, nodes and allocations, by reading its API."""
