"""Causes of slow jobs, from the activity of their boards, and remedies."""
