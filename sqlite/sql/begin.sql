-- Begins a transaction that takes the write lock when it first writes. That fails at once if somebody
-- else has written since the transaction first read: what it read is then no longer what is there.
BEGIN;
