"""Frozen values: what the system talks about, without any I/O."""
