"""The NVIDIA driver of this machine as a source, where no exporter runs."""
