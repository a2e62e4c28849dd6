"""Power caps: asked for in signed files, set and restored by an agent on each node."""
