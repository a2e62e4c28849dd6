"""The HTTP API, and the socket by which commands reach the process that holds the store."""
