"""A plan in partitions: each planned apart, prices of what they share exchanged between them."""
