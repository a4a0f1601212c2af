"""Data sets, and how their images are decoded, resized, corrupted and cached."""
