-- Writes the row that Op.Apply returned, in the transaction that has read the row. SQLite lets a
-- transaction write only if no other connection has written since it read.
--
-- The parameters are limiter, key and the columns.
INSERT INTO /* table */ (limiter, key, /* columns */, granted)
VALUES (?, ?, /* parameters */1)
ON CONFLICT (limiter, key) DO UPDATE
SET /* set */, granted = 1;
