-- At the commit, since a row is written before the entry that covers it. Early decisions have none.
CREATE FUNCTION require_entry() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM audit WHERE sequence = NEW.entry AND covers = TG_TABLE_NAME || ':' || NEW.sequence;
    IF NOT FOUND AND TG_TABLE_NAME = 'decisions' AND coalesce(NEW.entry, 0) = 0 THEN
        PERFORM 1 FROM audit WHERE coalesce(covers, '') = '' AND event = NEW.decision
            AND digest = NEW.digest AND actor = NEW.decided_by AND entry_at = NEW.decided_at;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'row % of table % has no audit entry', NEW.sequence, TG_TABLE_NAME
            USING ERRCODE = '42501';
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER accounted AFTER INSERT ON decisions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_entry();
CREATE CONSTRAINT TRIGGER accounted AFTER INSERT ON commands
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_entry();
CREATE CONSTRAINT TRIGGER accounted AFTER INSERT ON journal
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_entry();
CREATE CONSTRAINT TRIGGER accounted AFTER INSERT ON finding_events
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_entry();
CREATE CONSTRAINT TRIGGER accounted AFTER INSERT ON token_events
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION require_entry();
