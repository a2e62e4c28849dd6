"""HTML, Markdown, PDF, CSV."""
