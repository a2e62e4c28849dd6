"""Writing and reading facts, energy parts, series for pages."""
