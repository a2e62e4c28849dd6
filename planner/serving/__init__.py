"""The number of replicas that an inference service needs."""
