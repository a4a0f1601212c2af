"""Labeled images to benchmark on: `labels`, `batch(indices)`, and items (image, label).

Nothing is imported here, because data sets need packages that methods do not.
"""
