-- Reads how many pages the database has, the bytes of a page, and whether it keeps no free pages.
SELECT page_count, page_size, auto_vacuum
FROM pragma_page_count, pragma_page_size, pragma_auto_vacuum;
