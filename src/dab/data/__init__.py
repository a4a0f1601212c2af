"""Images: reading, resizing, corrupting, caching, and the data sets they come from."""
