CREATE INDEX ON token_events (token_hash);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON token_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
