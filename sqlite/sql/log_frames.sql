-- Counts the frames in the log (-wal), and those that were copied to the database file. A frame holds
-- one page. The first column means nothing.
PRAGMA wal_checkpoint(NOOP);
