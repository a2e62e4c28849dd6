"""Phases of training jobs: change points, labels, epochs, and what they foretell."""
