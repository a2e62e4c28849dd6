"""Rights, threads, escaping, figures as text, replay clock."""
