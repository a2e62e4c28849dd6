CREATE INDEX ON findings (target, action);
CREATE INDEX ON recommendations (finding);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON finding_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
