"""The roll-up of samples to five minutes per device and holder, as one statement.

What it settles, in this order:

1. Who holds a device. The job that the sample names (through an allocation's `label_id` to the job
   a person would change), and those that an allocation gives a share of that device beside it;
   else an allocation of that device, by UUID or by node and index, or one that takes all boards of
   the node; else, in a hole of at most two readings between two that name
   the same job, that job; else nobody: `free` when the device shows no work and hardly any memory,
   `unattributed` when it does or when that is not known.
2. The energy between two readings of a board: the counter's step, a reset counted from zero, a
   jump above 1.2 x limit x time not believed; else the trapezoid of power. Intervals above five
   minutes are unknown. An interval belongs to the slots it covers, by time, and to the holders at
   its end.
3. Whose energy it is. Holders of the same device share it equally. Of a board cut by MIG the idle
   power is shared by slices (unallocated slices keep theirs, as the row `unallocated`), the rest
   by slices x activity. `joules_by_slices` and `joules_by_activity` are the two pure rules: their
   spread is the uncertainty of the split, whose sum is the board's energy whichever rule.
"""

from data.base.units import SLOT_SECONDS
from data.facts.energy_integration import CAP_FACTOR, MAX_GAP_SECONDS, SLACK_JOULES

BRIDGE_SECONDS = 1800.0
"""Between two readings that name the same job those that name nobody are its own: exporters lose
labels in single scrapes, which some sources read every 15 minutes.
"""
REACH_SECONDS = BRIDGE_SECONDS + MAX_GAP_SECONDS
"""Reach of a sample or a holder: over a hole in the mapping, then back over the interval."""

IDLE_UTILIZATION = 0.01
IDLE_MEMORY_RATIO = 0.05
UNKNOWN_LIMIT_WATTS = 2000.0
"""Cap for a board whose limit neither it nor the catalogue tells: above every board sold."""


def host(column: str) -> str:
    """Return SQL for a node's short lower-case name, so that a FQDN and a host name meet."""
    return (
        f"lower(CASE WHEN regexp_full_match({column}, '[0-9.]+') THEN {column} "
        f"ELSE split_part({column}, '.', 1) END)"
    )


_ENDED = "max(ended_at) OVER (PARTITION BY job_id, started_at)"
"""Accounting tells the end of a job's stretch, without the devices that the queue told before."""

_SIGNAL_RANK = "CASE {} WHEN 'sm_active' THEN 3 WHEN 'gr_engine_active' THEN 2 ELSE 1 END"
_DEVICE = "gpu_uuid, mig_instance, moment"

FIVE_MINUTES = f"""
INSERT INTO five_minute
WITH raw AS MATERIALIZED (
    SELECT epoch(sampled_at) AS moment, gpu_uuid, mig_instance, mig_profile, node, gpu_index,
        gpu_model, job_id AS label_id, utilization_ratio AS utilization,
        floor(epoch(sampled_at) / {SLOT_SECONDS}) AS own_slot,
        utilization_signal AS signal, memory_used_mib AS memory, memory_total_mib AS memory_total,
        power_watts AS power, power_limit_watts AS limit_watts, energy_joules AS counter,
        {host("node")} AS host
    FROM samples
    WHERE sampled_at >= to_timestamp(:start - {REACH_SECONDS})
        AND sampled_at < to_timestamp(:end + {REACH_SECONDS})
), cut_boards AS (
    SELECT DISTINCT gpu_uuid, moment FROM raw WHERE mig_instance <> ''
), reported AS MATERIALIZED (
    SELECT raw.* FROM raw WHERE mig_instance <> ''
    UNION ALL
    SELECT raw.* FROM raw ANTI JOIN cut_boards USING (gpu_uuid, moment) WHERE mig_instance = ''
), spans AS MATERIALIZED (
    SELECT job_id AS job, {host("node")} AS host, gpu_index, gpu_uuid, mig_instance, gpu_count,
        epoch(started_at) AS since, epoch(coalesce(ended_at, {_ENDED}, seen_at)) AS until
    FROM allocations WHERE started_at <= to_timestamp(:end + {REACH_SECONDS})
), aliases AS (
    SELECT label_id, epoch(started_at) - {SLOT_SECONDS} AS since, max(job_id) AS job
    FROM allocations WHERE label_id <> '' GROUP BY ALL
), named AS MATERIALIZED (
    SELECT reported.*, coalesce(aliases.job, reported.label_id) AS job
    FROM reported ASOF LEFT JOIN aliases
        ON reported.label_id = aliases.label_id AND reported.moment >= aliases.since
    WHERE reported.label_id <> ''
), boards_of_host AS (
    SELECT host, own_slot, count(DISTINCT gpu_uuid) AS boards FROM raw GROUP BY ALL
    HAVING max(mig_instance) = ''
), shares AS MATERIALIZED (
    SELECT job, host, gpu_index, gpu_uuid, mig_instance AS shared_instance, since, until
    FROM spans WHERE gpu_count < 1
), beside AS (
    SELECT named.* REPLACE ('' AS label_id, shares.job AS job), shared_instance
    FROM named JOIN shares ON named.gpu_uuid = shares.gpu_uuid AND moment BETWEEN since AND until
    UNION
    SELECT named.* REPLACE ('' AS label_id, shares.job AS job), shared_instance
    FROM named JOIN shares ON named.host = shares.host AND named.gpu_index = shares.gpu_index
        AND moment BETWEEN since AND until
    WHERE shares.gpu_uuid = '' AND shares.gpu_index <> ''
    UNION
    SELECT named.* REPLACE ('' AS label_id, shares.job AS job), shared_instance
    FROM named JOIN boards_of_host USING (host, own_slot)
    JOIN shares ON named.host = shares.host AND moment BETWEEN since AND until
    WHERE shares.gpu_uuid = '' AND shares.gpu_index = '' AND boards = 1
), labelled AS (
    SELECT * FROM named
    UNION ALL
    SELECT * EXCLUDE (shared_instance) FROM beside ANTI JOIN named USING ({_DEVICE}, job)
    WHERE shared_instance IN ('', mig_instance)
), nameless AS MATERIALIZED (
    SELECT reported.* FROM reported ANTI JOIN labelled USING ({_DEVICE})
    WHERE reported.label_id = ''
), allocated AS MATERIALIZED (
    SELECT nameless.*, spans.job FROM nameless JOIN spans
        ON nameless.gpu_uuid = spans.gpu_uuid AND nameless.moment BETWEEN since AND until
    WHERE spans.mig_instance IN ('', nameless.mig_instance)
    UNION
    SELECT nameless.*, spans.job FROM nameless JOIN spans
        ON nameless.host = spans.host AND nameless.gpu_index = spans.gpu_index
        AND nameless.moment BETWEEN since AND until
    WHERE spans.gpu_uuid = '' AND spans.gpu_index <> ''
        AND spans.mig_instance IN ('', nameless.mig_instance)
    UNION
    SELECT nameless.*, spans.job FROM nameless JOIN boards_of_host USING (host, own_slot)
    JOIN spans
        ON nameless.host = spans.host AND nameless.moment BETWEEN since AND until
    WHERE spans.gpu_uuid = '' AND spans.gpu_index = ''
        AND (spans.gpu_count >= boards OR (spans.gpu_count < 1 AND boards = 1))
), nobody AS (
    SELECT nameless.* FROM nameless ANTI JOIN allocated USING ({_DEVICE})
), holed AS (
    SELECT gpu_uuid, mig_instance, moment, CASE WHEN count(*) = 1 THEN max(job) ELSE '' END AS job
    FROM (
        SELECT {_DEVICE}, job FROM labelled UNION ALL SELECT {_DEVICE}, job FROM allocated
        UNION ALL SELECT {_DEVICE}, '' FROM nobody
    ) SEMI JOIN nobody USING (gpu_uuid, mig_instance)
    GROUP BY ALL
), around AS (
    SELECT *, lag(job) OVER w AS before, lag(job, 2) OVER w AS before2,
        lead(job) OVER w AS after, lead(job, 2) OVER w AS after2,
        lag(moment) OVER w AS before_at, lag(moment, 2) OVER w AS before2_at,
        lead(moment) OVER w AS after_at, lead(moment, 2) OVER w AS after2_at
    FROM holed WINDOW w AS (PARTITION BY gpu_uuid, mig_instance ORDER BY moment)
), carried AS (
    SELECT {_DEVICE}, CASE WHEN before <> '' THEN before ELSE before2 END AS job
    FROM around
    WHERE job = '' AND (
        (before <> '' AND after = before AND after_at - before_at <= {BRIDGE_SECONDS})
        OR (before <> '' AND after = '' AND after2 = before
            AND after2_at - before_at <= {BRIDGE_SECONDS})
        OR (before = '' AND before2 <> '' AND after = before2
            AND after_at - before2_at <= {BRIDGE_SECONDS}))
), readings AS MATERIALIZED (
    SELECT *, 'job' AS holder FROM labelled
    UNION ALL SELECT *, 'job' FROM allocated
    UNION ALL
    SELECT nobody.*, coalesce(carried.job, '') AS job,
        CASE WHEN carried.job IS NOT NULL THEN 'job'
            WHEN coalesce(utilization <= {IDLE_UTILIZATION}, memory IS NOT NULL)
                AND coalesce(memory <= memory_total * {IDLE_MEMORY_RATIO}, true) THEN 'free'
            ELSE 'unattributed' END AS holder
    FROM nobody LEFT JOIN carried USING ({_DEVICE})
), sharing AS (
    SELECT {_DEVICE}, count(*) AS holders FROM readings GROUP BY ALL HAVING count(*) > 1
), boards AS (
    SELECT gpu_uuid, moment, max(power) AS power, max(counter) AS counter,
        coalesce(max(limit_watts), max(tdp_watts), {UNKNOWN_LIMIT_WATTS}) AS limit_watts,
        max(coalesce(idle_watts, 0)) AS idle_watts
    FROM raw LEFT JOIN incoming_models USING (gpu_model) GROUP BY ALL
), pairs AS (
    SELECT *, lag(moment) OVER w AS earlier, lag(counter) OVER w AS counter_before,
        lag(power) OVER w AS power_before
    FROM boards WINDOW w AS (PARTITION BY gpu_uuid ORDER BY moment)
), steps AS (
    SELECT *, CASE WHEN moment - earlier <= {MAX_GAP_SECONDS} THEN earlier END AS at_before
    FROM pairs
), measured AS (
    SELECT *, moment - at_before AS seconds,
        CASE WHEN at_before IS NULL THEN NULL
            WHEN counter >= counter_before THEN counter - counter_before
            ELSE counter + 0 * counter_before END AS step,
        (power + power_before) / 2 * (moment - at_before) AS power_joules
    FROM steps
), believed AS (
    SELECT *, step > {CAP_FACTOR} * limit_watts * seconds + {SLACK_JOULES} AS jumped
    FROM measured
), intervals AS (
    SELECT gpu_uuid, moment, at_before, seconds, power, idle_watts, power_joules,
        CASE WHEN NOT jumped THEN step END AS counter_joules, coalesce(jumped, false) AS jumped
    FROM believed
), instances AS (
    SELECT gpu_uuid, moment, mig_instance,
        max(utilization) AS activity, max(mig_profile) AS profile
    FROM raw WHERE mig_instance <> '' GROUP BY ALL
), cuts AS (
    SELECT *, coalesce(TRY_CAST(regexp_extract(profile, '^([1-7])g[.]', 1) AS DOUBLE) / 7,
        1.0 / count(*) OVER (PARTITION BY gpu_uuid, moment)) AS slices
    FROM instances
), mig_boards AS (
    SELECT gpu_uuid, moment, greatest(sum(slices), 1) AS whole, sum(slices) AS cut,
        sum(slices * coalesce(activity, 1)) AS active
    FROM cuts GROUP BY ALL
), weights AS (
    SELECT gpu_uuid, moment, mig_instance, slices / whole AS fraction,
        CASE WHEN active > 0 THEN slices * coalesce(activity, 1) / active
            ELSE slices / cut END AS activity_share
    FROM cuts JOIN mig_boards USING (gpu_uuid, moment)
    UNION ALL
    SELECT gpu_uuid, moment, 'unallocated', 1 - cut, 0 FROM mig_boards WHERE cut < 1 - 1e-9
), devices AS (
    SELECT {_DEVICE}, job, holder, node, gpu_index, gpu_model, mig_profile, utilization, signal,
        memory, memory_total, coalesce(holders, 1) AS holders,
        coalesce(fraction, 1) AS fraction, coalesce(activity_share, 1) AS activity_share
    FROM readings LEFT JOIN sharing USING ({_DEVICE}) LEFT JOIN weights USING ({_DEVICE})
    UNION ALL
    SELECT gpu_uuid, 'unallocated', weights.moment, '', 'free', any_node.node, any_node.gpu_index,
        any_node.gpu_model, '', NULL, '', NULL, NULL, 1, fraction, activity_share
    FROM weights JOIN (
        SELECT gpu_uuid, moment, max(node) AS node, max(gpu_index) AS gpu_index,
            max(gpu_model) AS gpu_model FROM raw WHERE mig_instance <> '' GROUP BY ALL
    ) AS any_node USING (gpu_uuid, moment)
    WHERE mig_instance = 'unallocated'
), charged AS (
    SELECT devices.*, at_before, coalesce(seconds, 0) AS seconds, power, jumped,
        counter_joules, power_joules,
        CASE WHEN power > 0 THEN (least(power, idle_watts) * fraction
                + greatest(power - idle_watts, 0) * activity_share) / power
            ELSE fraction END / holders AS share
    FROM devices JOIN intervals USING (gpu_uuid, moment)
), slotted AS (
    SELECT *, floor(moment / {SLOT_SECONDS}) * {SLOT_SECONDS} AS slot FROM charged
), parts AS (
    SELECT *, true AS at_end,
        coalesce(least(seconds, moment - slot) / nullif(seconds, 0), 0) AS part
    FROM slotted
    UNION ALL
    SELECT * REPLACE (slot - {SLOT_SECONDS} AS slot), false, (slot - at_before) / seconds
    FROM slotted WHERE at_before < slot
)
SELECT to_timestamp(slot) AS slot_start, gpu_uuid, mig_instance, job AS job_id, holder,
    max(node), max(gpu_index), max(gpu_model), max(mig_profile),
    sum(seconds * part / holders), sum(seconds * part / holders * fraction),
    coalesce(sum(seconds * part / holders * fraction * utilization), 0),
    coalesce(sum(seconds * part / holders * fraction) FILTER (utilization IS NOT NULL), 0),
    sum(coalesce(counter_joules, power_joules) * part * share),
    sum(coalesce(counter_joules, power_joules) * part * fraction / holders),
    sum(coalesce(counter_joules, power_joules) * part * activity_share / holders),
    sum(counter_joules * part * share),
    sum(power_joules * part * share),
    sum(power_joules * part * share) FILTER (counter_joules IS NOT NULL),
    count(*) FILTER (at_end AND mig_instance <> 'unallocated'),
    coalesce(sum(1.0 / holders) FILTER (at_end AND mig_instance <> 'unallocated'), 0),
    count(*) FILTER (at_end AND holders > 1),
    count(*) FILTER (at_end AND jumped),
    sum(utilization) FILTER (at_end),
    count(utilization) FILTER (at_end),
    max(utilization) FILTER (at_end),
    coalesce(arg_max(signal, {_SIGNAL_RANK.format("signal")}) FILTER (at_end AND signal <> ''), ''),
    max(memory) FILTER (at_end),
    max(memory_total),
    sum(power * share) FILTER (at_end),
    count(power * share) FILTER (at_end),
    coalesce(sum(1.0 / holders) FILTER (at_end AND power IS NOT NULL), 0),
    to_timestamp(max(moment) FILTER (at_end))
FROM parts WHERE slot >= :start AND slot < :end GROUP BY slot, gpu_uuid, mig_instance, job, holder
"""  # noqa: S608 - only constants of this module are put together
"""Fill five_minute for slots in [:start, :end), s since the epoch; they must be empty before."""

_SUMS = (
    "seconds",
    "board_seconds",
    "used_board_seconds",
    "known_board_seconds",
    "joules",
    "joules_by_slices",
    "joules_by_activity",
    "counter_joules",
    "power_joules",
    "power_joules_beside_counter",
    "samples",
    "sample_weight",
    "shared_samples",
    "jumps",
    "utilization_sum",
    "utilization_samples",
)
_KEYS = "gpu_uuid, mig_instance, job_id, holder"

HOURS = f"""
INSERT INTO hourly
SELECT to_timestamp(floor(epoch(slot_start) / 3600) * 3600) AS hour_start, {_KEYS},
    max(node), max(gpu_index), max(gpu_model), max(mig_profile),
    {", ".join(f"sum({name})" for name in _SUMS)},
    max(utilization_max),
    coalesce(arg_max(signal, {_SIGNAL_RANK.format("signal")}) FILTER (signal <> ''), ''),
    max(memory_max_mib), max(memory_total_mib), sum(power_sum), sum(power_samples),
    sum(power_weight), max(last_at)
FROM five_minute
WHERE slot_start >= to_timestamp(:start) AND slot_start < to_timestamp(:end)
GROUP BY hour_start, {_KEYS}
"""  # noqa: S608
"""Fill hourly from five_minute for hours in [:start, :end), s since the epoch."""
