"""GPUs of jobs by round: goodput, the objective of a round, its solver, its nodes."""
