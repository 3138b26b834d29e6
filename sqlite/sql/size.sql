-- Reads the number of pages, the bytes of a page, and whether the database keeps no free pages.
SELECT page_count, page_size, auto_vacuum
FROM pragma_page_count, pragma_page_size, pragma_auto_vacuum;
