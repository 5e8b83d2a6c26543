"""Figures of speed, each beside a named alternative or a limit, measured in the same run."""
