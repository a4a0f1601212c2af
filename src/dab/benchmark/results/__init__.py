"""What runs leave behind: results, their identity, summaries and tables."""
