-- Copies the log (-wal) to the database file, as far as those who read from the log allow.
PRAGMA wal_checkpoint(PASSIVE);
