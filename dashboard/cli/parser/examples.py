"""Examples of every command, which its `--help` ends with."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "completion": (
        "trimtab completion bash > ~/.local/share/bash-completion/completions/trimtab",
        "trimtab completion zsh > ~/.zfunc/_trimtab",
    ),
    "manual": ("trimtab manual | man -l -",),
    "demo": ("trimtab demo", "trimtab demo --days 1 --once"),
    "serve": (
        "trimtab serve --prometheus http://prometheus:9090",
        "trimtab --settings /etc/trimtab/trimtab.toml serve --host 0.0.0.0 --port 8501",
    ),
    "demo-exporter": ("trimtab demo-exporter --port 9400 --nodes 4",),
    "agent": ("trimtab agent --directory /shared/trimtab --secret-file /etc/trimtab/agent.secret",),
    "cycle": ("trimtab cycle --prometheus http://prometheus:9090 --lookback 24",),
    "collect": ("trimtab collect --prometheus http://prometheus:9090",),
    "forecast": ("trimtab forecast --by job", "trimtab forecast --backtest"),
    "plan": ("trimtab plan --by node", "trimtab plan --what-if headroom=0.3"),
    "import": ("trimtab import trace.parquet --map map.toml",),
    "jobs": ("trimtab jobs", "trimtab jobs --format csv > jobs.csv"),
    "gpus": ("trimtab gpus --format json",),
    "samples": (
        "trimtab samples --gpu GPU-5f3c --from 2026-11-01T00:00:00Z --format csv > gpu.csv",
        "trimtab samples --slots --job search/chat --format json",
    ),
    "nodes": ("trimtab nodes",),
    "heat": ("trimtab heat", "trimtab heat --format csv > heat.csv"),
    "capacity": ("trimtab capacity", "trimtab capacity --format json"),
    "queue": ("trimtab queue", "trimtab queue --format csv > queue.csv"),
    "quotas": ("trimtab quotas", "trimtab quotas --format json"),
    "sources": ("trimtab sources",),
    "urgent": ("trimtab urgent || echo 'somebody should look'",),
    "settings": ("trimtab settings --format csv",),
    "doctor": ("trimtab doctor", "trimtab doctor --prometheus http://prometheus:9090"),
    "energy": (
        "trimtab energy --by tenant --every week",
        "trimtab energy --by job --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z",
    ),
    "statement": (
        "trimtab statement --by tenant,model --every week",
        "trimtab statement --budgets",
        "trimtab statement --every hour --format focus-parquet --out charges.parquet",
    ),
    "report weekly": (
        "trimtab report weekly --last-week --out report.pdf",
        "trimtab report weekly --last-week --check",
    ),
    "audit list": ("trimtab audit list --format csv > audit.csv",),
    "audit verify": ("trimtab audit verify",),
    "store copy": (
        "trimtab store copy duckdb:////var/lib/trimtab.duckdb postgresql+psycopg://trimtab@db/trimtab",
    ),
    "store backup": ("trimtab store backup /backup/trimtab.tar",),
    "store restore": ("trimtab store restore /backup/trimtab.tar --replace",),
    "store migrate": ("trimtab store migrate",),
    "store check": ("trimtab store check",),
    "store grants": ("trimtab store grants | psql trimtab",),
    "findings list": (
        "trimtab findings list --team search --sort saving",
        "trimtab findings list --state snoozed --format json",
    ),
    "findings show": ("trimtab findings show TT-12",),
    "findings idle": ("trimtab findings idle",),
    "findings approve": (
        "trimtab findings approve TT-12 --by ann --comment 'agreed with the owner'",
        "trimtab findings approve TT-12 --by ann --look",
    ),
    "findings apply": ("trimtab findings apply TT-12 --by ann",),
    "findings snooze": ("trimtab findings snooze TT-12 --by ann --days 14 --comment 'a release'",),
    "findings dismiss": (
        "trimtab findings dismiss TT-12 --by ann --reason accepted-risk",
        "trimtab findings dismiss --matching 'job=search/eval-*' --by ann --reason not-now",
    ),
    "findings dismissals": ("trimtab findings dismissals",),
    "findings reopen": (
        "trimtab findings reopen TT-12 --by ann",
        "trimtab findings reopen --matching 3f9c21ab77de --by ann",
    ),
    "findings rollback": ("trimtab findings rollback TT-12 --by ann",),
    "findings reapply": ("trimtab findings reapply TT-12 --by ann",),
    "findings accept": ("trimtab findings accept TT-12 --by ann",),
    "token make": ("trimtab token make --for grafana --role viewer --days 90 --by ann",),
    "token list": ("trimtab token list",),
    "token revoke": ("trimtab token revoke 1a2b3c4d --by ann",),
    "mcp": ("trimtab --settings /etc/trimtab/trimtab.toml mcp",),
    "apply status": ("trimtab apply status",),
    "apply stop": ("trimtab apply stop --by ann --reason 'maintenance of the storage'",),
    "apply resume": ("trimtab apply resume --by ann",),
    "apply work": ("trimtab apply work",),
    "savings": ("trimtab savings", "trimtab savings --by namespace --format csv"),
    "estimate": (
        "trimtab estimate llama3-8b --batch 64 --seq 4096 --gpus 16",
        "trimtab estimate --serve llama3-8b --batch 64 --seq 32768 --gpu-memory-utilization 0.9",
        "trimtab estimate -- torchrun --nproc-per-node 8 train.py --model llama3-8b --bf16",
    ),
    "submit": ("trimtab submit job.toml --dry-run", "trimtab submit job.toml --target slurm --yes"),
    "submissions list": ("trimtab submissions list",),
    "submissions show": ("trimtab submissions show 1a2b3c4d",),
    "submissions watch": ("trimtab submissions watch --until-done",),
    "memory": ("trimtab memory",),
    "serving signals": (
        "trimtab serving signals vllm.prom",
        "trimtab serving signals vllm-0.prom vllm-1.prom --format json",
    ),
    "serving services": ("trimtab serving services", "trimtab serving services --format json"),
    "serving replicas": (
        "trimtab serving replicas --rate 5 --service-seconds 6 --slots 8 --wait 0.5",
    ),
}
"""By the words of the command."""


def examples_of(command: str) -> str:
    """Return the end of the help of a command, '' for a group of commands."""
    lines = "".join(f"  {example}\n" for example in EXAMPLES.get(command, ()))
    return f"\nexamples:\n{lines}" if lines else ""
