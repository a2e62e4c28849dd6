"""One command at a time: prepare, next step, verify, guards, change file."""
