"""PURE decisions of the router: which endpoint, what to eject, when to retry."""
