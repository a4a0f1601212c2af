"""The results of runs: whose they are, where they are kept, and tables of them."""
