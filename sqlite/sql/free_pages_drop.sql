-- Frees the pages of the table that the same transaction has made. If that failed, this statement is not sent.
-- IF EXISTS lets SQLite plan it while there is no table.
DROP TABLE IF EXISTS limiter_free_pages;
