"""The parser and its options."""
