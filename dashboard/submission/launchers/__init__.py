"""Reads a job from the launcher that its author uses: a command line, a file of a framework."""
