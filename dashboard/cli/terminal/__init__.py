"""Output, options, logging, context."""
