"""Sign-in, proxy, request filter, context."""
