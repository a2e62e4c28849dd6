"""What does not change with the fleet: GPU models and grid carbon, with source and licence."""
