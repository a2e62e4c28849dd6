"""The events of a training step and their memory."""
