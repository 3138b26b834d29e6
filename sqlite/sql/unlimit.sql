-- Lets a connection enlarge the database.
PRAGMA max_page_count = 4294967294;
