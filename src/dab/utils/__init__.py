"""Helpers that know nothing about adaptation: files, imports, processes, progress bars."""
