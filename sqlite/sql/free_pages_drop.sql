-- Frees the pages of the table, which nobody else has seen.
DROP TABLE IF EXISTS limiter_room;
