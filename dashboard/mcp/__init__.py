"""The same resources for assistants."""
