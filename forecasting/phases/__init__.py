"""Phases of training jobs: change points, labels, epochs, and forecasts by them."""
