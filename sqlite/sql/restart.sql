-- Copies the log (-wal) to the database file, so that the log begins anew in its own space. The first
-- column is 1 if another connection still reads from the log, or copies it. Then the second is -1.
PRAGMA wal_checkpoint(RESTART);
