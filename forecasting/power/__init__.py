"""Board power by activity, learned from the fleet's readings."""
