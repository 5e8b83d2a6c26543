"""One node's agent: it starts, watches, adopts and stops engines."""
