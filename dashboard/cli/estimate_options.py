"""The options of `trimtab estimate`."""

import argparse


def add_estimate_options(estimate: argparse.ArgumentParser) -> None:
    """Add what a training job is, where nothing else says it, and what is asked of it."""
    estimate.add_argument(
        "model",
        nargs="+",
        metavar="MODEL_CONFIG",
        help="config.json or a known model; a framework's YAML or TOML; or -- and a launch command",
    )
    estimate.add_argument("--config", default="", metavar="FILE", help="the model's config.json")
    estimate.add_argument(
        "--serve", action="store_true", help="the model is served, not trained: by --framework"
    )
    estimate.add_argument("--batch", type=int, help="sequences of a whole step, or served at once")
    estimate.add_argument("--seq", type=int, help="tokens of a sequence")
    for name, meaning in (
        ("framework", "such as torchtitan; with --serve vllm (default) or sglang"),
        ("optimizer", "such as adamw or adamw8bit"),
        ("precision", "what is kept in which width, such as amp or bf16-true"),
        ("quantization", "of frozen or served weights, such as nf4 or fp8"),
    ):
        estimate.add_argument(f"--{name}", default="", help=meaning)
    estimate.add_argument("--method", choices=("full", "adapter"), default="")
    estimate.add_argument("--adapter-rank", type=int, metavar="R")
    estimate.add_argument("--lengths", choices=("fixed", "vary"), help="of sequences")
    estimate.add_argument("--recompute", choices=("none", "attention", "operators", "full"))
    estimate.add_argument("--micro-batch", type=int, metavar="B", help="fix the micro-batch")
    estimate.add_argument(
        "--gpu", action="append", default=[], metavar="TYPE", help="only this GPU type; repeatable"
    )
    estimate.add_argument(
        "--gpus", type=int, help="most GPUs (default 64), or all where no launcher says it"
    )
    for name in ("data", "tensor", "pipeline", "context", "expert"):
        estimate.add_argument(f"--{name}", type=int, metavar="N", help=f"fix {name} parallelism")
    shardings = ("none", "zero1", "zero2", "zero3", "fsdp", "fsdp-gradients")
    estimate.add_argument("--sharding", choices=shardings, help="over the data-parallel GPUs")
    estimate.add_argument(
        "--offload",
        action="append",
        default=[],
        choices=("optimizer", "parameters", "activations"),
        help="kept in the host's memory; repeatable",
    )
    estimate.add_argument(
        "--gpu-memory-utilization",
        type=float,
        metavar="SHARE",
        help="of a GPU that the engine takes (default: what it does unasked)",
    )
    estimate.add_argument(
        "--kv-cache-dtype", choices=("auto", "fp8"), default="", help="of the engine's cache"
    )
    estimate.add_argument("--tokens", type=float, metavar="N", help="of the run: shows its hours")
    estimate.add_argument(
        "--time-limit", type=float, metavar="HOURS", help="warn where a run takes longer"
    )
    estimate.add_argument("--top", type=int, default=10, help="plans shown (default 10)")
