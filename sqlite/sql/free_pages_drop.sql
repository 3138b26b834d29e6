-- Frees the pages of the table. No other connection has seen it.
DROP TABLE IF EXISTS limiter_room;
