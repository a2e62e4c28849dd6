"""MARP: the peak memory of one GPU of a training job, as the maximum over the events of a step."""
