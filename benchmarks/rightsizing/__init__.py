"""Right-sizing rules replayed: those of peers as published, and our own."""
