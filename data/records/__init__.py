"""Plain, frozen records: what the packages say to one another."""
