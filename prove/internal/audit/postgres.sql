-- The audit of the limiter's tables in PostgreSQL. Buckets and windows have one form:
-- (full_at, start, used, at, period, lim), all 0 where there is no row.
--
-- The number of a change is drawn while its row is locked, so that it counts in the order
-- of the commits of that row, though not in that of different rows.

CREATE TABLE audit (
    seq bigserial NOT NULL,
    windows boolean NOT NULL,
    limiter text NOT NULL,
    key bytea NOT NULL,
    units bigint NOT NULL,
    old bigint[] NOT NULL,
    new bigint[] NOT NULL
);

CREATE FUNCTION audit_bucket() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO audit (windows, limiter, key, units, old, new) VALUES (false, NEW.limiter, NEW.key, NEW.granted,
            ARRAY[OLD.full_at, 0, 0, OLD.at, OLD.step, OLD.capacity], ARRAY[NEW.full_at, 0, 0, NEW.at, NEW.step, NEW.capacity]);
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO audit (windows, limiter, key, units, old, new) VALUES (false, NEW.limiter, NEW.key, NEW.granted,
            '{0,0,0,0,0,0}', ARRAY[NEW.full_at, 0, 0, NEW.at, NEW.step, NEW.capacity]);
    ELSE
        INSERT INTO audit (windows, limiter, key, units, old, new) VALUES (false, OLD.limiter, OLD.key, 0,
            ARRAY[OLD.full_at, 0, 0, OLD.at, OLD.step, OLD.capacity], '{0,0,0,0,0,0}');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION audit_window() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO audit (windows, limiter, key, units, old, new) VALUES (true, NEW.limiter, NEW.key, NEW.granted,
            ARRAY[0, OLD.window_start, OLD.used, OLD.at, OLD.win, OLD.lim], ARRAY[0, NEW.window_start, NEW.used, NEW.at, NEW.win, NEW.lim]);
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO audit (windows, limiter, key, units, old, new) VALUES (true, NEW.limiter, NEW.key, NEW.granted,
            '{0,0,0,0,0,0}', ARRAY[0, NEW.window_start, NEW.used, NEW.at, NEW.win, NEW.lim]);
    ELSE
        INSERT INTO audit (windows, limiter, key, units, old, new) VALUES (true, OLD.limiter, OLD.key, 0,
            ARRAY[0, OLD.window_start, OLD.used, OLD.at, OLD.win, OLD.lim], '{0,0,0,0,0,0}');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON limiter_token_buckets
    FOR EACH ROW EXECUTE FUNCTION audit_bucket();
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON limiter_fixed_windows
    FOR EACH ROW EXECUTE FUNCTION audit_window();
