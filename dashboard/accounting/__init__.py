"""Money, energy and carbon over the same parts and prices."""
