-- Begins a transaction that takes the write lock when it first writes. That fails at once if another
-- connection has written since the transaction first read, because what it read is stale.
BEGIN;
