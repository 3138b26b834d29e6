-- Begins a transaction that has the write lock from the start.
BEGIN IMMEDIATE;
