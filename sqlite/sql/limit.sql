-- Keeps a connection from enlarging the database. SQLite raises 1 to the current number of pages.
PRAGMA max_page_count = 1;
