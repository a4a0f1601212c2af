"""Small classifiers of the embedded benchmarks, with their training recipes and weights."""
