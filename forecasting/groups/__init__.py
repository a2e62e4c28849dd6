"""Fleet, namespaces, models, racks, workloads, request rates, queue waits."""
