-- Copies the log (-wal) to the database file, so that the log begins anew in its own space. The first
-- column is 1 if another connection blocks the restart. The second is -1 if that connection copies the log.
PRAGMA wal_checkpoint(RESTART);
