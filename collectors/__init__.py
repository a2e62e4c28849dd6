"""Where facts come from. Every source is its own file or folder, and one line here."""

COLLECTORS = {
    "prometheus": "collectors.dcgm_metrics",
    "slurm": "collectors.slurm.jobs",
    "kubernetes": "collectors.kubernetes.jobs",
    "nvml": "collectors.nvml.sampler",
    "simulated_fleet": "collectors.simulated_cluster",
}
"""The section of a live source to the module with its SOURCE; imported only when it is used."""

FILE_READERS = {
    "dcgm-text": "collectors.exposition_text",
    "prometheus-json": "collectors.exposition_text",
    "trace": "collectors.trace_files",
}
"""Kinds of files that `trimtab import` reads, to their modules."""
