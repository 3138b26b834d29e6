-- Reads the row of a key, which Op.Apply decides on.
--
-- By itself the statement may only refuse, without the write lock. Takes only lower what is left, so
-- what this snapshot refuses, no later state without a refund could grant at its time.
--
-- The parameters are limiter and key. They have no numbers, because the driver would look up each
-- by its name.
SELECT /* columns */
FROM /* table */
WHERE limiter = ? AND key = ?;
