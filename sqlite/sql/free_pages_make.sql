-- Enlarges the database. The same transaction drops the table, so that its pages are free.
--
-- ?1 bytes
CREATE TABLE IF NOT EXISTS limiter_room AS SELECT zeroblob(?1) AS room;
