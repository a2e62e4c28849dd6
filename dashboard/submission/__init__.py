"""Serverless submission: a job that names no GPU becomes a plan, a place, a manifest, and runs."""
