"""Labeled images to benchmark on: `labels`, `batch(indices)`, and items (image, label).

Nothing is imported here, since the data sets need packages that the methods do not.
"""
