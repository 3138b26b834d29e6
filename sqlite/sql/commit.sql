-- Makes what a transaction wrote visible to others, all of it at once.
COMMIT;
