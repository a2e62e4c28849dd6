"""Where facts come from. Every source is one file here and one line in COLLECTORS."""

COLLECTORS = {
    "prometheus-dcgm": "collectors.dcgm_metrics",
    "kubernetes": "collectors.kubernetes.jobs",
    "nvml": "collectors.nvml.metrics",
    "slurm": "collectors.slurm.jobs",
    "dcgm-text": "collectors.exposition_text",
    "prometheus-json": "collectors.exposition_text",
    "trace": "collectors.trace_files",
    "simulated-fleet": "collectors.simulated_fleet",
}
"""Source name to the module that reads it; imported only when it is used."""
