"""What an applier does, kill switch, wording, multi-cluster."""
