-- The audit of the limiter's tables in SQLite, in the form of that in PostgreSQL.
--
-- The store writes by UPSERTs. AFTER triggers tell whether one inserted or updated. If it did
-- neither, they tell nothing. If the transaction fails, what a trigger wrote is undone.

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    windows INTEGER NOT NULL, limiter TEXT NOT NULL, key BLOB NOT NULL,
    full_at INTEGER, start INTEGER, used INTEGER, at INTEGER, period INTEGER, lim INTEGER, -- the row before, or NULLs
    new_full_at INTEGER, new_start INTEGER, new_used INTEGER, new_at INTEGER, new_period INTEGER, new_lim INTEGER -- the row after, or NULLs
);

CREATE TRIGGER audit_bucket_insert AFTER INSERT ON limiter_token_buckets BEGIN
    INSERT INTO audit (windows, limiter, key, new_full_at, new_start, new_used, new_at, new_period, new_lim)
    VALUES (0, NEW.limiter, NEW.key, NEW.full_at, 0, 0, NEW.at, NEW.step, NEW.capacity);
END;

CREATE TRIGGER audit_bucket_update AFTER UPDATE ON limiter_token_buckets BEGIN
    INSERT INTO audit (windows, limiter, key, full_at, start, used, at, period, lim, new_full_at, new_start, new_used, new_at, new_period, new_lim)
    VALUES (0, NEW.limiter, NEW.key, OLD.full_at, 0, 0, OLD.at, OLD.step, OLD.capacity, NEW.full_at, 0, 0, NEW.at, NEW.step, NEW.capacity);
END;

CREATE TRIGGER audit_bucket_delete AFTER DELETE ON limiter_token_buckets BEGIN
    INSERT INTO audit (windows, limiter, key, full_at, start, used, at, period, lim)
    VALUES (0, OLD.limiter, OLD.key, OLD.full_at, 0, 0, OLD.at, OLD.step, OLD.capacity);
END;

CREATE TRIGGER audit_window_insert AFTER INSERT ON limiter_fixed_windows BEGIN
    INSERT INTO audit (windows, limiter, key, new_full_at, new_start, new_used, new_at, new_period, new_lim)
    VALUES (1, NEW.limiter, NEW.key, 0, NEW.window_start, NEW.used, NEW.at, NEW.win, NEW.lim);
END;

CREATE TRIGGER audit_window_update AFTER UPDATE ON limiter_fixed_windows BEGIN
    INSERT INTO audit (windows, limiter, key, full_at, start, used, at, period, lim, new_full_at, new_start, new_used, new_at, new_period, new_lim)
    VALUES (1, NEW.limiter, NEW.key, 0, OLD.window_start, OLD.used, OLD.at, OLD.win, OLD.lim, 0, NEW.window_start, NEW.used, NEW.at, NEW.win, NEW.lim);
END;

CREATE TRIGGER audit_window_delete AFTER DELETE ON limiter_fixed_windows BEGIN
    INSERT INTO audit (windows, limiter, key, full_at, start, used, at, period, lim)
    VALUES (1, OLD.limiter, OLD.key, 0, OLD.window_start, OLD.used, OLD.at, OLD.win, OLD.lim);
END;
