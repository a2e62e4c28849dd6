"""The policy of GPUs by job and type, round by round: HAS for jobs that change their size."""
