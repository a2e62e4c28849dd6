"""One file a section, loading, ranges, several clusters."""
