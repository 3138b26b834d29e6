-- Keeps a connection from enlarging the database. SQLite takes the number of pages that there are.
PRAGMA max_page_count = 1;
