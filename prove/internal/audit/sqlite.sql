-- The audit of the limiter's tables in SQLite, in the form of that in PostgreSQL. These triggers are
-- made for each table. OLD_ROW and NEW_ROW stand for the JSON of a row.
--
-- The store writes by UPSERTs. AFTER triggers tell whether one inserted or updated. If it did
-- neither, they tell nothing. If the transaction fails, what a trigger wrote is undone.

CREATE TABLE IF NOT EXISTS audit (
    seq INTEGER PRIMARY KEY,
    name TEXT NOT NULL, -- of the table
    units INTEGER NOT NULL DEFAULT 0,
    old TEXT, -- the row before, or NULL
    new TEXT  -- the row after, or NULL
);

CREATE TRIGGER audit_insert_TABLE_NAME AFTER INSERT ON TABLE_NAME BEGIN
    INSERT INTO audit (name, new) VALUES ('TABLE_NAME', NEW_ROW);
END;

CREATE TRIGGER audit_update_TABLE_NAME AFTER UPDATE ON TABLE_NAME BEGIN
    INSERT INTO audit (name, old, new) VALUES ('TABLE_NAME', OLD_ROW, NEW_ROW);
END;

CREATE TRIGGER audit_delete_TABLE_NAME AFTER DELETE ON TABLE_NAME BEGIN
    INSERT INTO audit (name, old) VALUES ('TABLE_NAME', OLD_ROW);
END;
