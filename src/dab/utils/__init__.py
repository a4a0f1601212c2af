"""General helpers: files, imports, processes, progress bars."""
