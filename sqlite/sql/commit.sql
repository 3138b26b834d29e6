-- Commits a transaction: others see all of its writes at once.
COMMIT;
