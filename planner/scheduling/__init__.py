"""GPUs of a new job among those that wait: the objective of a round, and its solver."""
