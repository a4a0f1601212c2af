"""Shared by the pages and servers of this package."""
