"""How an approved recommendation reaches a cluster. Read-only so far: it becomes a change file."""
