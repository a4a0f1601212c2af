"""A server of one model for many streams, each of which adapts on its own."""
