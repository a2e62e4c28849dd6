"""Memory estimates for options, launchers, serving."""
