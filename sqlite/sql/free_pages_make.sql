-- Enlarges the database. The same transaction drops the table, so that its pages are free. If there is a table
-- of this name, the statement fails, and the transaction is rolled back.
--
-- ?1 bytes
CREATE TABLE limiter_free_pages AS SELECT zeroblob(?1) AS room;
