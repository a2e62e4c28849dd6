"""Page Fleet with Facility."""
