"""Classifiers: any by name, and small ones of the embedded benchmarks with their training."""
