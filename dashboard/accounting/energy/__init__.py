"""Energy and carbon statement."""
