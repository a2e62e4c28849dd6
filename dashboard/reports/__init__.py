"""What people forward: the weekly report, as Markdown, HTML and JSON."""
