#!/bin/sh
# slurmd's Prolog (root): the power agent runs while jobs with GPUs run on this node.
# Not needed where the agent is always there (trimtab-agent.service). It never fails: a prolog that
# does would drain the node.
: "${POWER_AGENT_PROGRAM:=/usr/local/bin/trimtab}"
: "${POWER_AGENT_EXCHANGE:=/shared/trimtab/power}"
: "${POWER_AGENT_SECRET:=/etc/trimtab/power.secret}"
: "${POWER_AGENT_STATE:=/var/lib/trimtab-agent/limits.json}"
[ -n "$SLURM_JOB_GPUS" ] || exit 0
folder=$(dirname "$POWER_AGENT_STATE")
mkdir -p "$folder/jobs" || exit 0
exec 9>"$folder/scripts.lock" || exit 0
flock 9
: >"$folder/jobs/$SLURM_JOB_ID"
agent=$(cat "$POWER_AGENT_STATE.lock" 2>/dev/null)
if [ -z "$agent" ] || ! kill -0 "$agent" 2>/dev/null; then
    # 9>&-: the agent must not keep the lock of these scripts.
    setsid "$POWER_AGENT_PROGRAM" agent --node "$SLURMD_NODENAME" --directory "$POWER_AGENT_EXCHANGE" \
        --secret-file "$POWER_AGENT_SECRET" --state-file "$POWER_AGENT_STATE" \
        </dev/null >>"$folder/agent.log" 2>&1 9>&- &
fi
exit 0
