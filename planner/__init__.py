"""TS-DPBP: allocations over time with a certified gap, and what to recommend from them. Pure."""
