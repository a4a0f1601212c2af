"""One run: evaluate a method on a stream, record it, checkpoint it, log it."""
