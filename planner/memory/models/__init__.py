"""Model shapes and sizes from configs."""
