-- Deletes the expired rows of a page. It checks them again, because a take may have written a row
-- since the page was read.
--
-- ?1 and ?2: limiter and key of the last row of the page before. ?3 and ?4: those of the last row of
-- this page. ?5: the latest end of an expired row. ?6: rows to delete at most.
DELETE FROM /* table */
WHERE (limiter, key) IN (
    SELECT limiter, key
    FROM /* table */
    WHERE (limiter, key) > (?1, ?2)
      AND (limiter, key) <= (?3, ?4)
      AND max(at, /* end */) <= ?5
    ORDER BY limiter, key
    LIMIT ?6
);
