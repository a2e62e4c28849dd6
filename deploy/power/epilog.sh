#!/bin/sh
# slurmd's Epilog (root): with the last job with GPUs the agent ends, and puts the limits back.
# The caps of a job that ended earlier are not renewed by Trimtab, and end with that.
: "${POWER_AGENT_PROGRAM:=/usr/local/bin/trimtab}"
: "${POWER_AGENT_EXCHANGE:=/shared/trimtab/power}"
: "${POWER_AGENT_SECRET:=/etc/trimtab/power.secret}"
: "${POWER_AGENT_STATE:=/var/lib/trimtab-agent/limits.json}"
[ -n "$SLURM_JOB_GPUS" ] || exit 0
folder=$(dirname "$POWER_AGENT_STATE")
[ -d "$folder/jobs" ] || exit 0
exec 9>"$folder/scripts.lock" || exit 0
flock 9
rm -f "$folder/jobs/$SLURM_JOB_ID"
[ -z "$(ls "$folder/jobs")" ] || exit 0
agent=$(cat "$POWER_AGENT_STATE.lock" 2>/dev/null)
if [ -n "$agent" ] && kill "$agent" 2>/dev/null; then
    tries=0
    while kill -0 "$agent" 2>/dev/null && [ "$tries" -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
fi
# An agent that was killed left its limits behind; with nothing to put back this does nothing.
"$POWER_AGENT_PROGRAM" agent --restore --node "$SLURMD_NODENAME" --directory "$POWER_AGENT_EXCHANGE" \
    --secret-file "$POWER_AGENT_SECRET" --state-file "$POWER_AGENT_STATE" \
    </dev/null >>"$folder/agent.log" 2>&1 9>&-
exit 0
