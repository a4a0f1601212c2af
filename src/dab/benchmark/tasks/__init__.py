"""What methods are compared on: one file per data set."""
