"""What inference services served."""
