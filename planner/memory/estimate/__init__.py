"""MARP: peak, bounds, calibration, plans that fit."""
