-- Frees the pages of the table. The same transaction has made it; otherwise this statement is not sent.
DROP TABLE IF EXISTS limiter_free_pages;
