"""Prophet: the package itself as the reference, and its model solved exactly in batches."""
