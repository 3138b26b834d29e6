-- The audit of the limiter's tables in PostgreSQL. A trigger on each of them calls audit().
--
-- The number of a change is drawn while its row is locked, so that it counts in the order
-- of the commits of that row, though not in that of different rows.

CREATE TABLE audit (
    seq bigserial NOT NULL,
    name text NOT NULL, -- of the table
    units bigint NOT NULL,
    old json, -- the row before, or NULL
    new json  -- the row after, or NULL
);

CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (name, units, old, new) VALUES (TG_TABLE_NAME, coalesce(NEW.granted, 0), to_json(OLD), to_json(NEW));
    RETURN NULL;
END $$;
