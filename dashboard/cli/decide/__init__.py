"""Commands that decide, apply, submit."""
