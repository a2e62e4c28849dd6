"""Page Findings, its drawer Plan."""
