"""How many replicas an inference service needs."""
