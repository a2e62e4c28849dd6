"""Boards on nodes, fragmentation, temporal packing."""
