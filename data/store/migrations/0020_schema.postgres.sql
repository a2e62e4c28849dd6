-- What the queries use and PostgreSQL lacks. STABLE, since only then are they put in line.
CREATE FUNCTION epoch(TIMESTAMPTZ) RETURNS DOUBLE PRECISION
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT extract(epoch FROM $1)::DOUBLE PRECISION $$;

CREATE FUNCTION epoch_us(TIMESTAMPTZ) RETURNS BIGINT
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT (extract(epoch FROM $1) * 1000000)::BIGINT $$;

CREATE FUNCTION hash(TEXT, BIGINT) RETURNS BIGINT
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT hashtextextended($1, $2) $$;

-- The record is only ever appended to, whoever is connected.
CREATE FUNCTION refuse_change() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'table % is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END
$$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON decisions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE INDEX ON forecasts (cycle_id);
-- Samples lie in a partition a day, five-minute roll-ups in one a month: retention drops them whole.
CREATE TABLE parted (LIKE samples INCLUDING DEFAULTS) PARTITION BY RANGE (sampled_at);
DROP TABLE samples;
ALTER TABLE parted RENAME TO samples;
CREATE UNIQUE INDEX ON samples (sampled_at, gpu_uuid, mig_instance, job_id);

CREATE TABLE parted (LIKE five_minute INCLUDING DEFAULTS) PARTITION BY RANGE (slot_start);
DROP TABLE five_minute;
ALTER TABLE parted RENAME TO five_minute;
CREATE INDEX ON five_minute (slot_start);
CREATE INDEX ON five_minute (job_id, slot_start);
CREATE INDEX ON five_minute (gpu_uuid, slot_start);

CREATE INDEX ON hourly (slot_start);
CREATE INDEX ON allocations (job_id, started_at);
CREATE INDEX ON allocations (label_id);

-- Both functions act as the owner of the tables, and only on tables cut so; who may call them
-- is granted. Attaching a partition that was made apart keeps no reader waiting.
CREATE FUNCTION make_partition(parent TEXT, moment TIMESTAMPTZ) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    unit TEXT := CASE parent WHEN 'samples' THEN 'day' WHEN 'five_minute' THEN 'month' END;
    digits TEXT := CASE unit WHEN 'day' THEN '_YYYYMMDD' ELSE '_YYYYMM' END;
    first_day TIMESTAMP := date_trunc(unit, moment AT TIME ZONE 'UTC');
    part TEXT := parent || to_char(first_day, digits);
BEGIN
    IF unit IS NULL THEN
        RAISE EXCEPTION 'table % has no partitions', parent;
    END IF;
    IF to_regclass(part) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS)', part, parent);
    EXECUTE format(
        'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part,
        first_day AT TIME ZONE 'UTC', (first_day + ('1 ' || unit)::INTERVAL) AT TIME ZONE 'UTC');
END
$$;

CREATE FUNCTION drop_partitions(parent TEXT, before TIMESTAMPTZ) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    part REGCLASS;
    found BIGINT;
    dropped BIGINT := 0;
BEGIN
    IF parent NOT IN ('samples', 'five_minute') THEN
        RAISE EXCEPTION 'table % has no partitions', parent;
    END IF;
    FOR part IN
        SELECT c.oid::REGCLASS FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = parent::REGCLASS AND before >= substring(
            pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''([^'']+)''\)')::TIMESTAMPTZ
    LOOP
        EXECUTE format('SELECT count(*) FROM %s', part) INTO found;
        EXECUTE format('DROP TABLE %s', part);
        dropped := dropped + found;
    END LOOP;
    RETURN dropped;
END
$$;
REVOKE ALL ON FUNCTION make_partition(TEXT, TIMESTAMPTZ) FROM PUBLIC;
REVOKE ALL ON FUNCTION drop_partitions(TEXT, TIMESTAMPTZ) FROM PUBLIC;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON commands
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON journal
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE INDEX ON journal (command_id);
CREATE INDEX ON journal (digest);
CREATE INDEX ON commands (digest);
CREATE INDEX ON decisions (digest);
CREATE INDEX ON findings (target, action);
CREATE INDEX ON recommendations (finding);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON finding_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE INDEX ON token_events (token_hash);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON token_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
