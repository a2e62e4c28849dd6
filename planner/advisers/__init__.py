"""One file a kind of advice."""
