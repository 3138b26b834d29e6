-- Frees the pages of the table that this transaction has made.
DROP TABLE limiter_free_pages;
