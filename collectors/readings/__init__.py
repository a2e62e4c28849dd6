"""Metric names, labels, plausibility, series to samples, XID, activity, serving signals."""
