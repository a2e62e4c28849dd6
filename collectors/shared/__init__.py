"""The collector contract, collecting from all, HTTP deadlines, multi-cluster, MIG layout files."""
