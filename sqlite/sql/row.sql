-- Reads the row of a key, for Op.Apply.
--
-- Outside a transaction that writes, the row may only refuse. Takes only lower what is left. So if this
-- snapshot refuses a take, no later state could grant it at that time without a refund.
--
-- The parameters are limiter and key. They have no numbers, because the driver would look up each
-- by its name.
SELECT /* columns */
FROM /* table */
WHERE limiter = ? AND key = ?;
