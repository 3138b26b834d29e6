-- The audit of the limiter's tables in SQLite, in the form of that in PostgreSQL.
--
-- The store writes by REPLACE, which for triggers is an INSERT alone. BEFORE it the row
-- that it replaces is still there. If the INSERT fails, what the trigger wrote is undone.

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    windows INTEGER NOT NULL, limiter TEXT NOT NULL, key BLOB NOT NULL,
    full_at INTEGER, start INTEGER, used INTEGER, at INTEGER, period INTEGER, lim INTEGER, -- the row before, or NULLs
    new_full_at INTEGER, new_start INTEGER, new_used INTEGER, new_at INTEGER, new_period INTEGER, new_lim INTEGER -- the row after, or NULLs
);

CREATE TRIGGER audit_bucket_put BEFORE INSERT ON limiter_token_buckets BEGIN
    INSERT INTO audit (windows, limiter, key, full_at, start, used, at, period, lim, new_full_at, new_start, new_used, new_at, new_period, new_lim)
    SELECT 0, NEW.limiter, NEW.key, b.full_at, 0, 0, b.at, b.step, b.capacity, NEW.full_at, 0, 0, NEW.at, NEW.step, NEW.capacity
    FROM (SELECT 1) LEFT JOIN limiter_token_buckets AS b ON b.limiter = NEW.limiter AND b.key = NEW.key;
END;

CREATE TRIGGER audit_bucket_delete AFTER DELETE ON limiter_token_buckets BEGIN
    INSERT INTO audit (windows, limiter, key, full_at, start, used, at, period, lim)
    VALUES (0, OLD.limiter, OLD.key, OLD.full_at, 0, 0, OLD.at, OLD.step, OLD.capacity);
END;

CREATE TRIGGER audit_window_put BEFORE INSERT ON limiter_fixed_windows BEGIN
    INSERT INTO audit (windows, limiter, key, full_at, start, used, at, period, lim, new_full_at, new_start, new_used, new_at, new_period, new_lim)
    SELECT 1, NEW.limiter, NEW.key, 0, w.window_start, w.used, w.at, w.win, w.lim, 0, NEW.window_start, NEW.used, NEW.at, NEW.win, NEW.lim
    FROM (SELECT 1) LEFT JOIN limiter_fixed_windows AS w ON w.limiter = NEW.limiter AND w.key = NEW.key;
END;

CREATE TRIGGER audit_window_delete AFTER DELETE ON limiter_fixed_windows BEGIN
    INSERT INTO audit (windows, limiter, key, full_at, start, used, at, period, lim)
    VALUES (1, OLD.limiter, OLD.key, 0, OLD.window_start, OLD.used, OLD.at, OLD.win, OLD.lim);
END;

-- The store does not update rows, today. If it ever does this tells, rather than miss it.
CREATE TRIGGER audit_bucket_update BEFORE UPDATE ON limiter_token_buckets BEGIN
    SELECT RAISE(ABORT, 'the audit knows no UPDATE');
END;

CREATE TRIGGER audit_window_update BEFORE UPDATE ON limiter_fixed_windows BEGIN
    SELECT RAISE(ABORT, 'the audit knows no UPDATE');
END;
