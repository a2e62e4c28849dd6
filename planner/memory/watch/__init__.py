"""Jobs whose memory runs out or has become free."""
