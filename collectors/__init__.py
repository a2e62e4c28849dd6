"""Sources of facts. Every source is its own file or folder, and one line here."""

COLLECTORS = {
    "prometheus": "collectors.prometheus.metrics",
    "slurm": "collectors.slurm.jobs",
    "kubernetes": "collectors.kubernetes.jobs",
    "nvml": "collectors.nvml.sampler",
    "simulated_fleet": "collectors.simulated.cluster",
}
"""The section of a live source to the module with its SOURCE; imported only when it is used."""

FILE_READERS = {
    "dcgm-text": "collectors.readings.exposition_text",
    "prometheus-json": "collectors.readings.exposition_text",
    "trace": "collectors.trace.files",
}
"""Kinds of files that `trimtab import` reads, to their modules."""
