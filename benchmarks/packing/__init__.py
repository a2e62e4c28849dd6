"""Packing runs on the fewest nodes over time: yardsticks that no cycle asks for."""
