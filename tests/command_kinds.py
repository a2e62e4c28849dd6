"""What each command does with a store that another process may hold."""

READS = {
    "forecast": "", "plan": "", "jobs": "", "gpus": "", "nodes": "", "queue": "",
    "quotas": "", "capacity": "", "heat": "", "sources": "",
    "samples": "--slots --job search/chat",
    "doctor": "", "urgent": "", "energy": "--by day", "score": "", "statement": "",
    "report weekly": "--now 2026-11-20T00:00:00Z",
    "audit list": "", "audit verify": "", "store check": "", "findings list": "--all",
    "findings show": "TT-1", "findings idle": "",
    "apply status": "", "savings": "", "memory": "",
    "serving services": "",
    "estimate": "llama3-8b --batch 8 --seq 2048", "submissions list": "", "token list": "",
    "submissions show": "nothing",
}  # fmt: skip
"""What is read through the holder, and options of each."""
DECIDES = {
    "findings snooze", "findings dismiss", "findings reopen", "findings approve",
    "findings apply", "findings rollback", "findings reapply", "findings accept",
    "token make",
    "token revoke", "acknowledge",
}  # fmt: skip
NEEDS_THE_FILE = {
    "cycle", "collect", "import", "store copy", "store restore", "store migrate", "apply work",
    "submit", "submissions watch", "serve", "demo",
}  # fmt: skip
WITHOUT_A_STORE = {
    "agent", "demo-exporter", "settings", "store grants", "mcp",
    "completion", "serving replicas",
    # These have their own way to the holder: tests/dashboard/test_told_to_stop.py, test_backup.py.
    "apply stop", "apply resume", "store backup",
}  # fmt: skip
