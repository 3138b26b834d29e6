-- Copies the log (-wal) to the database file, as far as readers of the log allow.
PRAGMA wal_checkpoint(PASSIVE);
