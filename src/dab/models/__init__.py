"""Classifiers: loading any by name, and the small shipped ones with their training."""
