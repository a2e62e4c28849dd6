"""Job file, fleet on offer, placement, manifest."""
