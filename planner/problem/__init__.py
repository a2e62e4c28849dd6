"""The planning problem: jobs, their options, costs and needs per slot, and the fleet."""
