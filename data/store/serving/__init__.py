"""Slots of inference services: requests served, replicas, waits."""
