"""Page New job."""
