"""Page Overview."""
