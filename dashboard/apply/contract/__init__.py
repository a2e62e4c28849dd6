"""The contract of appliers, the kill switch, words of changes, several clusters."""
