"""Who gets which GPUs this round: goodput, the objective of a round, its solver, its nodes."""
