"""Changes of Kubernetes objects: the same steps as a file for a person, or sent after approval."""
