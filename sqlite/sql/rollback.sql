-- Undoes what a transaction wrote.
ROLLBACK;
