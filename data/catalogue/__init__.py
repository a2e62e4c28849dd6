"""Constants beyond the fleet: GPU models and grid carbon, with source and licence."""
