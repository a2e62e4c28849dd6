"""One module per yardstick; `python -m benchmarks.NAME` prints its table."""
