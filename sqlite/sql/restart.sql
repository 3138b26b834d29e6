-- Copies the log (-wal) to the database file, so that the log begins anew in the space that it has. The
-- first column is 1 if somebody reads from the log still.
PRAGMA wal_checkpoint(RESTART);
