"""Temporal bin packing: items that hold part of a bin from a start until before an end."""
