"""What a board draws for what it does, learned from the fleet's readings."""
