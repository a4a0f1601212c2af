"""What methods are made of: losses, layers, parameters, statistics, and the state between calls."""
