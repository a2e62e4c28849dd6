"""Store, its readers, remote store, backup, copy."""
