"""Tests, by kind: unit mirrors the tree; all other folders use real parts."""
