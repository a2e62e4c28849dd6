"""The weekly report to forward, as Markdown, HTML and JSON."""
